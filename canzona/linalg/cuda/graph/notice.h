// A number that work on a GPU leaves where this process sees it, without
// either waiting for the other.
#pragma once

#include <memory>

#include "canzona/linalg/engine.h"

namespace canzona {

// For engines of the GPU alone.
std::unique_ptr<Notice> make_cuda_notice();

}  // namespace canzona

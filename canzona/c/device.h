// Devices as callers name them: "cpu", "cuda" (the current one), "cuda:3".
#pragma once

#include <memory>
#include <string_view>

#include "canzona/linalg/engine.h"

namespace canzona {

struct NamedDevice {
  bool is_cuda = false;
  int number = 0;
};
// UsageError names what came and what was expected.
NamedDevice read_device(std::string_view name);

// An engine of that device; on a GPU all its work is issued to `stream`.
std::unique_ptr<Engine> engine_of(std::string_view device, void* stream);

}  // namespace canzona

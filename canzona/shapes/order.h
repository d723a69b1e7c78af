// The order of tensors that came from files.
#pragma once

#include <string>
#include <vector>

#include "canzona/shapes/tensor.h"

namespace canzona {

// Embeddings, then layers by number and by name inside, then what has no layer,
// then the head. Depends on the names and roles alone, not on where the tensors
// stood.
void sort_tensors(std::vector<Tensor>& tensors);

}  // namespace canzona

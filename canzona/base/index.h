// Numbers of ranks, tensors and elements are signed; places in a vector are
// not.
#pragma once

#include <cstddef>
#include <cstdint>

namespace canzona {

inline size_t index(int64_t number) { return static_cast<size_t>(number); }

}  // namespace canzona

// Ranks, tensors and elements are numbered with signed integers; vectors are
// indexed with unsigned ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace canzona {

inline size_t index(int64_t number) { return static_cast<size_t>(number); }

}  // namespace canzona

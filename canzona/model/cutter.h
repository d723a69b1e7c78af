// Cuts one block of memory into arrays, or, given none, only counts: what is
// counted before an allocation is what is taken afterwards.
//
//   Cutter count(nullptr);
//   lay_out(count);
//   Cutter cut(allocate(count.bytes()));
//   lay_out(cut);
#pragma once

#include <cstddef>
#include <cstdint>

#include "canzona/base/units.h"

namespace canzona {

class Cutter {
 public:
  explicit Cutter(std::byte* memory) : memory_(memory) {}

  // On a border of 128 bytes; null where nothing is given.
  template <class T>
  T* take(int64_t count) {
    constexpr int64_t kBorder = 128;
    const int64_t size = checked_mul(count, static_cast<int64_t>(sizeof(T)),
                                     "memory of the decoder");
    std::byte* place = memory_ == nullptr ? nullptr : memory_ + bytes_;
    const int64_t padded =
        checked_add(size, kBorder - 1, "memory of the decoder");
    bytes_ = checked_add(bytes_, padded / kBorder * kBorder,
                         "memory of the decoder");
    return reinterpret_cast<T*>(place);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  int64_t bytes_ = 0;
};

}  // namespace canzona

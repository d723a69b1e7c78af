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

  // rows x cols, on a border of 128 bytes; null where nothing is given.
  // UsageError where they are too many to count.
  template <class T>
  T* take(int64_t rows, int64_t cols = 1) {
    constexpr const char* kWhat = "memory of the decoder";
    constexpr int64_t kBorder = 128;
    const int64_t count = checked_mul(rows, cols, kWhat);
    const int64_t size =
        checked_mul(count, static_cast<int64_t>(sizeof(T)), kWhat);
    const int64_t padded = checked_add(size, kBorder - 1, kWhat);
    std::byte* place = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ = checked_add(bytes_, padded / kBorder * kBorder, kWhat);
    return reinterpret_cast<T*>(place);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* memory_;
  int64_t bytes_ = 0;
};

}  // namespace canzona

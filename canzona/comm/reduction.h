// What a collective adds: the numbers in memory, on the wire, and the
// operation. Moves (gathers, all-to-all, broadcast) count plain bytes.
//
//   world.all_reduce(Reduction::kFp32Sum, bytes_of(gradients));
#pragma once

#include <cstdint>
#include <string_view>

namespace canzona {

enum class Reduction {
  kFp32Sum,
  // fp32 in memory, bf16 on the wire: every piece is rounded, the rank's own
  // too, and the pieces are added in fp32.
  kFp32SumOfBf16,
  kInt64Sum,  // modulo 2^64
  kInt64Max,
  kInt128Sum,  // two words, the lower first; modulo 2^128
};

constexpr int64_t element_bytes(Reduction reduction) {
  switch (reduction) {
    case Reduction::kFp32Sum:
    case Reduction::kFp32SumOfBf16:
      return 4;
    case Reduction::kInt64Sum:
    case Reduction::kInt64Max:
      return 8;
    case Reduction::kInt128Sum:
      break;
  }
  return 16;
}

constexpr int64_t wire_bytes(Reduction reduction) {
  return reduction == Reduction::kFp32SumOfBf16 ? 2 : element_bytes(reduction);
}

// True if elements have another form on the wire than in memory.
constexpr bool is_narrowed(Reduction reduction) {
  return wire_bytes(reduction) != element_bytes(reduction);
}

constexpr std::string_view to_string(Reduction reduction) {
  switch (reduction) {
    case Reduction::kFp32Sum:
      return "fp32 sum";
    case Reduction::kFp32SumOfBf16:
      return "fp32 sum of bf16";
    case Reduction::kInt64Sum:
      return "int64 sum";
    case Reduction::kInt64Max:
      return "int64 max";
    case Reduction::kInt128Sum:
      break;
  }
  return "int128 sum";
}

}  // namespace canzona

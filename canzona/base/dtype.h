// Number formats, in memory, on the wire and in files.
//
//   const int64_t bytes = count * size_of(DType::kBf16);
//   std::string_view name = to_string(DType::kBf16);   // "bf16"
//
// Engines compute with floats alone; integers are only stored.
#pragma once

#include <cstdint>
#include <string_view>

namespace canzona {

enum class DType { kFp64, kFp32, kBf16, kFp16, kI64, kI32, kU64, kU32, kU8 };

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
    case DType::kI64:
    case DType::kU64:
      return 8;
    case DType::kFp32:
    case DType::kI32:
    case DType::kU32:
      return 4;
    case DType::kBf16:
    case DType::kFp16:
      return 2;
    case DType::kU8:
      break;
  }
  return 1;
}

constexpr std::string_view to_string(DType dtype) {
  constexpr std::string_view kNames[] = {"fp64", "fp32", "bf16", "fp16", "i64",
                                         "i32",  "u64",  "u32",  "u8"};
  return kNames[static_cast<int>(dtype)];
}

}  // namespace canzona

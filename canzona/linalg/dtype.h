// Number formats of matrices in memory.
#pragma once

#include <cstdint>
#include <string_view>

namespace canzona {

enum class DType { kFp64, kFp32, kBf16, kFp16 };

constexpr int64_t size_of(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
      return 8;
    case DType::kFp32:
      return 4;
    case DType::kBf16:
    case DType::kFp16:
      break;
  }
  return 2;
}

constexpr std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kFp64:
      return "fp64";
    case DType::kFp32:
      return "fp32";
    case DType::kBf16:
      return "bf16";
    case DType::kFp16:
      break;
  }
  return "fp16";
}

// DTypeOf<float>::value, for code that is written once for both.
template <class Real>
struct DTypeOf;
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFp64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFp32;
};

}  // namespace canzona

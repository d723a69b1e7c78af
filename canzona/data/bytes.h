// Numbers out of bytes at any address, checked to lie inside.
//
//   auto version = number_at<uint64_t>(bytes, 9);
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "canzona/base/check.h"

namespace canzona {

template <class Number>
Number number_at(std::span<const std::byte> bytes, size_t offset) {
  CANZONA_CHECK(
      offset <= bytes.size() && bytes.size() - offset >= sizeof(Number),
      "byte ", offset, " of ", bytes.size());
  Number number;
  std::memcpy(&number, bytes.data() + offset, sizeof number);
  return number;
}

}  // namespace canzona

#include "canzona/runtime/digest/logical_digest.h"

#include <bit>
#include <cstdio>
#include <cstdlib>

#include "canzona/base/digest.h"
#include "canzona/base/random.h"

namespace canzona {

uint64_t name_seed(std::string_view name) {
  constexpr size_t kDigits = 16;
  constexpr int kHexadecimal = 16;
  const std::string digits = sha256_hex(name).substr(0, kDigits);
  return std::strtoull(digits.c_str(), nullptr, kHexadecimal);
}

void LogicalDigest::add(uint64_t seed, int64_t first,
                        std::span<const uint32_t> bits) {
  uint64_t low = 0, high = 0;
  for (size_t i = 0; i < bits.size(); ++i) {
    const uint64_t place = bits_at(seed, static_cast<uint64_t>(first) + i);
    low += bits_at(place, bits[i]);
    high += bits_at(~place, bits[i]);
  }
  words_[0] += low;
  words_[1] += high;
}

void LogicalDigest::add(uint64_t seed, int64_t first,
                        std::span<const float> values) {
  add(seed, first,
      std::span(reinterpret_cast<const uint32_t*>(values.data()),
                values.size()));
}

std::string LogicalDigest::text() const {
  char text[33];
  std::snprintf(text, sizeof(text), "%016llx%016llx",
                static_cast<unsigned long long>(words_[1]),
                static_cast<unsigned long long>(words_[0]));
  return text;
}

}  // namespace canzona

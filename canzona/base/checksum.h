// A 128-bit checksum that costs little more than reading the bytes: four
// CRC-32C side by side, where word i (8 bytes, little endian) goes to CRC i mod
// 4 and the last group of four words is padded with zeros. It detects damage,
// not forgery; use SHA-256 (digest.h) for that.
//
//   Checksum sum;
//   while (…) sum.add(piece);
//   std::string text = sum.hex();   // 32 lower-case hexadecimal digits
//
// The result is the same on every processor. One thread at a time per object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace canzona {

class Checksum {
 public:
  void add(std::string_view bytes);
  // Nothing may be added afterwards.
  std::string hex();

 private:
  static constexpr size_t kGroupBytes = 32;

  std::array<uint32_t, 4> lanes_ = {~0U, ~0U, ~0U, ~0U};
  std::array<unsigned char, kGroupBytes> rest_{};
  size_t num_rest_ = 0;
};

}  // namespace canzona

// A checksum of 128 bits that costs little more than reading: four CRC-32C
// side by side, word i (8 bytes, little endian) of the bytes going to CRC
// i mod 4; the last group of four words is filled up with zeros. It finds
// damage; against forgery there is SHA-256 (digest.h).
//
//   Checksum sum;
//   while (…) sum.add(piece);
//   std::string text = sum.hex();   // 32 lower-case hexadecimal digits
//
// Equal on every processor. One thread at a time per object.
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
  // Nothing may be added after it.
  std::string hex();

 private:
  static constexpr size_t kGroupBytes = 32;

  std::array<uint32_t, 4> lanes_ = {~0U, ~0U, ~0U, ~0U};
  std::array<unsigned char, kGroupBytes> rest_{};
  size_t num_rest_ = 0;
};

}  // namespace canzona

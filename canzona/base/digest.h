// SHA-256 (FIPS 180-4) of a sequence of bytes. It names plans and verifies
// checkpoints: equal digests mean equal bytes on all ranks and machines.
//
//   std::string name = sha256_hex("abc");   // "ba7816bf…15ad"
//
//   Sha256 hash;                             // of bytes that come in pieces
//   while (…) hash.add(piece);
//   std::string digest = hash.hex();
//
// Uses the processor's own instructions where it has them (ARMv8 SHA2, SHA-NI);
// the result is the same. One thread at a time per object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace canzona {

// Returns 64 lower-case hexadecimal digits.
std::string sha256_hex(std::string_view bytes);

// {0x1234abcd, 7} → "1234abcd00000007": eight hexadecimal digits per word.
std::string hex_words(std::span<const uint32_t> words);

class Sha256 {
 public:
  void add(std::string_view bytes);
  // Returns 64 lower-case hexadecimal digits. Nothing may be added afterwards.
  std::string hex();

 private:
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372,
                                    0xa54ff53a, 0x510e527f, 0x9b05688c,
                                    0x1f83d9ab, 0x5be0cd19};
  std::string rest_;  // less than a block
  uint64_t bytes_ = 0;
};

// A 128-bit checksum that costs little more than reading the bytes: four
// CRC-32C side by side, where word i (8 bytes, little endian) goes to CRC i mod
// 4 and the last group of four words is padded with zeros. It detects damage,
// not forgery; use SHA-256 for that.
//
//   Checksum sum;
//   while (…) sum.add(piece);
//   std::string text = sum.hex();   // 32 lower-case hexadecimal digits
//
// The result is the same on every processor. One thread at a time per object.
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

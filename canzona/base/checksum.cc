#include "canzona/base/checksum.h"

#include <algorithm>
#include <cstring>

#include "canzona/base/digest.h"
#include "canzona/base/digest_blocks.h"

namespace canzona {
namespace {

// Tables for eight bytes at a time: table[k][b] is the CRC of byte b followed
// by k zeros.
using Crc32cTables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Crc32cTables make_crc32c_tables() {
  constexpr uint32_t kCastagnoli = 0x82F63B78;  // reflected
  Crc32cTables table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCastagnoli : 0);
    table[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = table[k - 1][byte];
      table[k][byte] = (before >> 8) ^ table[0][before & 0xFF];
    }
  return table;
}

constexpr Crc32cTables kCrc32cTables = make_crc32c_tables();

uint32_t crc32c_word(uint32_t crc, const unsigned char* bytes) {
  uint32_t out = 0;
  for (size_t i = 0; i < 8; ++i) {
    const unsigned char mixed =
        i < 4 ? static_cast<unsigned char>(bytes[i] ^ (crc >> (8 * i)))
              : bytes[i];
    out ^= kCrc32cTables[7 - i][mixed];
  }
  return out;
}

Crc32cGroups chosen_crc32c() {
  static const Crc32cGroups chosen = crc32c_groups_hardware() != nullptr
                                         ? crc32c_groups_hardware()
                                         : crc32c_groups_portable;
  return chosen;
}

}  // namespace

void crc32c_groups_portable(uint32_t* lanes, const unsigned char* groups,
                            size_t count) {
  for (size_t i = 0; i < 4 * count; ++i)
    lanes[i % 4] = crc32c_word(lanes[i % 4], groups + 8 * i);
}

void Checksum::add(std::string_view bytes) {
  if (num_rest_ > 0) {
    const size_t taken = std::min(kGroupBytes - num_rest_, bytes.size());
    std::memcpy(rest_.data() + num_rest_, bytes.data(), taken);
    num_rest_ += taken;
    bytes.remove_prefix(taken);
    if (num_rest_ < kGroupBytes) return;
    chosen_crc32c()(lanes_.data(), rest_.data(), 1);
    num_rest_ = 0;
  }
  const size_t groups = bytes.size() / kGroupBytes;
  chosen_crc32c()(lanes_.data(),
                  reinterpret_cast<const unsigned char*>(bytes.data()), groups);
  bytes.remove_prefix(groups * kGroupBytes);
  if (!bytes.empty()) std::memcpy(rest_.data(), bytes.data(), bytes.size());
  num_rest_ = bytes.size();
}

std::string Checksum::hex() {
  if (num_rest_ > 0) {
    std::fill(rest_.begin() + static_cast<std::ptrdiff_t>(num_rest_),
              rest_.end(), static_cast<unsigned char>(0));
    chosen_crc32c()(lanes_.data(), rest_.data(), 1);
  }
  std::array<uint32_t, 4> sums = lanes_;
  for (uint32_t& sum : sums) sum = ~sum;
  return hex_words(sums);
}

}  // namespace canzona

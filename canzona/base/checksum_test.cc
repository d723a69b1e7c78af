#include "canzona/base/digest.h"

#include <gtest/gtest.h>

#include <set>

#include "canzona/base/digest_blocks.h"
#include "canzona/base/random.h"

namespace canzona::checksum_test {
namespace {

std::string sum_of(std::string_view bytes) {
  Checksum sum;
  sum.add(bytes);
  return sum.hex();
}

// Computed bit by bit, as the polynomial is defined.
uint32_t plain_crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit)
      crc = (crc & 1) != 0 ? (crc >> 1) ^ 0x82F63B78U : crc >> 1;
  }
  return ~crc;
}

std::string plain_sum(std::string bytes) {
  while (bytes.size() % 32 != 0) bytes += '\0';
  std::array<std::string, 4> lanes;
  for (size_t i = 0; i < bytes.size(); i += 8)
    lanes[i / 8 % 4] += bytes.substr(i, 8);
  std::array<uint32_t, 4> sums{};
  for (size_t i = 0; i < 4; ++i) sums[i] = plain_crc32c(lanes[i]);
  return hex_words(sums);
}

std::string mixed_bytes(size_t count) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i)
    bytes[i] = static_cast<char>(bits_at(9, i));
  return bytes;
}

// The check value of CRC-32C, for the digits 1 to 9.
TEST(Checksum, TheOracleAgreesWithTheStandard) {
  EXPECT_EQ(plain_crc32c("123456789"), 0xE3069283U);
}

TEST(Checksum, IsFourCrc32c) {
  for (size_t count = 0; count < 140; ++count)
    EXPECT_EQ(sum_of(mixed_bytes(count)), plain_sum(mixed_bytes(count)))
        << count;
}

TEST(Checksum, PiecesAreTheWhole) {
  const std::string bytes = mixed_bytes(1000);
  for (const size_t piece : {1, 7, 31, 32, 33, 64, 999}) {
    Checksum sum;
    for (size_t at = 0; at < bytes.size(); at += piece)
      sum.add(std::string_view(bytes).substr(at, piece));
    sum.add("");
    EXPECT_EQ(sum.hex(), plain_sum(bytes)) << piece;
  }
}

TEST(Checksum, TheProcessorsInstructionsGiveTheSame) {
  const Crc32cGroups hardware = crc32c_groups_hardware();
  if (hardware == nullptr) GTEST_SKIP() << "this processor has none";
  const std::string bytes = mixed_bytes(32 * 20 + 3);
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  for (size_t count = 0; count < 20; ++count) {
    std::array<uint32_t, 4> a = {1, 2, 3, ~0U};
    std::array<uint32_t, 4> b = a;
    crc32c_groups_portable(a.data(), data + count % 4, count);
    hardware(b.data(), data + count % 4, count);
    EXPECT_EQ(a, b) << count;
  }
}

TEST(Checksum, EveryBitCounts) {
  const std::string bytes = mixed_bytes(75);
  std::set<std::string> sums = {sum_of(bytes)};
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    sums.insert(sum_of(changed));
  }
  EXPECT_EQ(sums.size(), 601u);
}

}  // namespace
}  // namespace canzona::checksum_test

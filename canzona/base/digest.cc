#include "canzona/base/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "canzona/base/digest_blocks.h"

namespace canzona {
namespace {

// Names and constants are those of FIPS 180-4, section 6.2.
constexpr size_t kBlockBytes = 64;
constexpr size_t kLengthBytes = 8;

using State = std::array<uint32_t, 8>;

uint32_t big_endian_word(const unsigned char* bytes) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) {
    word = (word << 8) | bytes[i];
  }
  return word;
}

// One round. The eight words shift by one position each round; instead of
// moving them, callers pass them rotated. `word` is the round's constant plus
// its word of the message schedule.
inline void add_round(uint32_t a, uint32_t b, uint32_t c, uint32_t& d,
                      uint32_t e, uint32_t f, uint32_t g, uint32_t& h,
                      uint32_t word) {
  const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
  const uint32_t choice = (e & f) ^ (~e & g);
  const uint32_t t1 = h + sum1 + choice + word;
  const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
  const uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
  d += t1;
  h = t1 + sum0 + majority;
}

// Word t of the message schedule, of which `w` holds the last sixteen.
inline uint32_t next_word(std::array<uint32_t, 16>& w, size_t t) {
  if (t < 16) return w[t];
  const uint32_t x = w[(t + 1) % 16];
  const uint32_t y = w[(t + 14) % 16];
  const uint32_t s0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3);
  const uint32_t s1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10);
  return w[t % 16] += s0 + w[(t + 9) % 16] + s1;
}

void add_block(State& state, const unsigned char* block) {
  std::array<uint32_t, 16> w;
  for (size_t t = 0; t < 16; ++t) w[t] = big_endian_word(block + 4 * t);
  auto [a, b, c, d, e, f, g, h] = state;
  const auto word = [&](size_t t) { return kSha256Round[t] + next_word(w, t); };
#pragma GCC unroll 8
  for (size_t t = 0; t < 64; t += 8) {
    add_round(a, b, c, d, e, f, g, h, word(t));
    add_round(h, a, b, c, d, e, f, g, word(t + 1));
    add_round(g, h, a, b, c, d, e, f, word(t + 2));
    add_round(f, g, h, a, b, c, d, e, word(t + 3));
    add_round(e, f, g, h, a, b, c, d, word(t + 4));
    add_round(d, e, f, g, h, a, b, c, word(t + 5));
    add_round(c, d, e, f, g, h, a, b, word(t + 6));
    add_round(b, c, d, e, f, g, h, a, word(t + 7));
  }
  const State change = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < state.size(); ++i) state[i] += change[i];
}

// Returns the padded end of a message: its last bytes, one 1 bit, zeros, and
// the message's length in bits.
std::string last_blocks(std::string_view rest, uint64_t message_bytes) {
  std::string blocks(rest);
  blocks.push_back(static_cast<char>(0x80));
  while (blocks.size() % kBlockBytes != kBlockBytes - kLengthBytes) {
    blocks.push_back('\0');
  }
  const uint64_t bits = message_bytes * 8;
  for (int shift = 56; shift >= 0; shift -= 8) {
    blocks.push_back(static_cast<char>(bits >> shift & 0xFF));
  }
  return blocks;
}

Sha256Blocks chosen_sha256() {
  static const Sha256Blocks chosen = sha256_blocks_hardware() != nullptr
                                         ? sha256_blocks_hardware()
                                         : sha256_blocks_portable;
  return chosen;
}

void add_blocks(State& state, std::string_view blocks) {
  chosen_sha256()(state.data(),
                  reinterpret_cast<const unsigned char*>(blocks.data()),
                  blocks.size() / kBlockBytes);
}

}  // namespace

void sha256_blocks_portable(uint32_t* words, const unsigned char* blocks,
                            size_t count) {
  State state;
  std::copy_n(words, state.size(), state.begin());
  for (size_t i = 0; i < count; ++i) add_block(state, blocks + i * kBlockBytes);
  std::copy(state.begin(), state.end(), words);
}

std::string hex_words(std::span<const uint32_t> words) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint32_t word : words)
    for (int shift = 28; shift >= 0; shift -= 4)
      text.push_back(kDigits[word >> shift & 0xF]);
  return text;
}

void Sha256::add(std::string_view bytes) {
  bytes_ += bytes.size();
  if (!rest_.empty()) {
    const size_t taken = std::min(kBlockBytes - rest_.size(), bytes.size());
    rest_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    if (rest_.size() < kBlockBytes) return;
    add_blocks(state_, rest_);
    rest_.clear();
  }
  const size_t whole = bytes.size() / kBlockBytes * kBlockBytes;
  add_blocks(state_, bytes.substr(0, whole));
  rest_.append(bytes.substr(whole));
}

std::string Sha256::hex() {
  add_blocks(state_, last_blocks(rest_, bytes_));
  return hex_words(state_);
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

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

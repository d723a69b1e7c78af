// This rank's share of the digests of what all ranks hold together; see
// Runtime.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "canzona/runtime/rank.h"

namespace canzona {

// A digest of numbers by name and logical position, whoever holds them: the
// sum over all elements of a hash of (name, position, bits), so that ranks add
// what they hold and no tensor is ever put together.
//
//   LogicalDigest digest;
//   digest.add(name_seed("layers.0.q"), first, {values, count});
//   digest.text();            // "3f…", 32 hexadecimal digits
//
// Equal numbers give equal digests; others differ but for an accident of one in
// 2^128. It does not resist a forger.

uint64_t name_seed(std::string_view name);

class LogicalDigest {
 public:
  // Elements `first`, `first + 1`, … of a thing.
  void add(uint64_t seed, int64_t first, std::span<const uint32_t> bits);
  void add(uint64_t seed, int64_t first, std::span<const float> values);

  // Adds what another one was given.
  void add(const LogicalDigest& other) {
    words_[0] += other.words_[0];
    words_[1] += other.words_[1];
  }

  std::span<uint64_t, 2> words() { return words_; }
  std::string text() const;
  friend bool operator==(const LogicalDigest& a, const LogicalDigest& b) {
    return a.words_[0] == b.words_[0] && a.words_[1] == b.words_[1];
  }

 private:
  uint64_t words_[2] = {0, 0};
};

// All ranks of the plan call it: InternalError if some of them should hold the
// same parameters, and do not.
LogicalDigest digest_parameters(Rank& rank);
LogicalDigest digest_states(Rank& rank);

}  // namespace canzona

// This rank's share of the digests of what all ranks hold together; see
// Runtime.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "canzona/runtime/rank.h"

namespace canzona::runtime {

// A digest of values by name and logical position, independent of who holds
// them: the sum over all elements of a hash of (name, position, bits). Ranks
// add up the digests of what they hold, and no tensor is ever assembled.
//
//   LogicalDigest digest;
//   digest.add(name_seed("layers.0.q"), first, {values, count});
//   digest.text();            // "3f…", 32 hexadecimal digits
//
// Equal values give equal digests; different ones collide with a probability of
// 2^-128. It is not cryptographically secure.

uint64_t name_seed(std::string_view name);

class LogicalDigest {
 public:
  // Adds elements `first`, `first + 1`, … of the thing with this seed.
  void add(uint64_t seed, int64_t first, std::span<const uint32_t> bits);
  void add(uint64_t seed, int64_t first, std::span<const float> values);

  // Adds everything that was added to `other`.
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

// All ranks of the plan must call it. Throws InternalError if ranks that should
// hold the same parameters do not.
LogicalDigest digest_parameters(Rank& rank);
LogicalDigest digest_states(Rank& rank);

}  // namespace canzona::runtime

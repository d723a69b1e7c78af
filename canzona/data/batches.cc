#include "canzona/data/batches.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"

namespace canzona::data {
namespace {

int64_t held_out_tokens(int64_t size, double share) {
  return static_cast<int64_t>(std::floor(static_cast<double>(size) * share));
}

// Counts sequences of length + 1 tokens each, a length apart.
int64_t num_sequences(int64_t tokens, int64_t length) {
  return tokens > 0 ? (tokens - 1) / length : 0;
}

}  // namespace

Batches::Batches(const TokenSource& tokens, const BatchOptions& options)
    : tokens_(tokens), options_(options) {
  const double share = options.held_out;
  if (options.length < 1)
    throw UsageError(
        cat("sequences of ", options.length, " tokens, expected 1 or more"));
  if (!(share >= 0 && share < 1))
    throw UsageError(cat("a held-out share of ", share, ", expected 0 to 1"));
  first_held_out_ = tokens.size() - held_out_tokens(tokens.size(), share);
  if (num_train() >= 1 && num_held_out() >= 1) return;
  throw UsageError(
      cat(tokens.describe(), ": ", first_held_out_, " tokens to train on and ",
          tokens.size() - first_held_out_, " held out, expected at least ",
          options.length + 1, " of each for one sequence of ", options.length,
          "; give more text, shorter sequences or another held-out share"));
}

int64_t Batches::num_train() const {
  return num_sequences(first_held_out_, options_.length);
}

int64_t Batches::num_held_out() const {
  return num_sequences(tokens_.size() - first_held_out_, options_.length);
}

void Batches::read(int64_t first, std::span<int32_t> sequence) const {
  CANZONA_CHECK_EQ(sequence.size(), options_.length + 1, "tokens to read");
  tokens_.read(first, sequence);
}

void Batches::train(int64_t number, std::span<int32_t> sequence) const {
  CANZONA_CHECK(number >= 0, "training sequence ", number);
  const auto epoch = static_cast<uint64_t>(number / num_train());
  const Permutation order(num_train(), bits_at(options_.seed, epoch));
  read(order(number % num_train()) * options_.length, sequence);
}

void Batches::held_out(int64_t number, std::span<int32_t> sequence) const {
  CANZONA_CHECK(number >= 0 && number < num_held_out(), "held-out sequence ",
                number, " of ", num_held_out());
  read(first_held_out_ + number * options_.length, sequence);
}

namespace {

// Four rounds give a network that none of our tests can tell from random; six
// cost little.
constexpr uint64_t kRounds = 6;
}  // namespace

Permutation::Permutation(int64_t n, uint64_t key)
    : n_(static_cast<uint64_t>(n)), key_(key) {
  CANZONA_CHECK(n >= 1 && n <= int64_t{1} << 62, "a permutation of ", n);
  const auto bits = static_cast<int>(std::bit_width(n_ - 1));
  half_bits_ = std::max((bits + 1) / 2, 1);
}

uint64_t Permutation::shuffle(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = bits_at(bits_at(key_, round), right) & mask;
    const uint64_t next = left ^ mixed;
    left = right;
    right = next;
  }
  return left << half_bits_ | right;
}

// The loop ends, because it stays on the cycle of `i`, which is below n.
int64_t Permutation::operator()(int64_t i) const {
  auto value = static_cast<uint64_t>(i);
  CANZONA_CHECK(i >= 0 && value < n_, "number ", i, " of ", n_);
  do value = shuffle(value);
  while (value >= n_);
  return static_cast<int64_t>(value);
}

}  // namespace canzona::data

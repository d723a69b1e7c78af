// Sequences in the order in which they are learned. It depends on the tokens,
// the length and the seed alone: sequence n is the same on any number of
// ranks, so that the position of a run is one number, the tokens consumed.
//
//   Batches batches(*tokens, {.length = 64, .seed = 1});
//   batches.train(consumed / 64 + i, sequence);   // 65 tokens: input, target
//
// Sequences begin every `length` tokens; the last token of one, a target, is
// the first of the next. The last `held_out` of the tokens is never trained on.
// Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/data/token_source.h"

namespace canzona {

struct BatchOptions {
  int64_t length = 0;
  uint64_t seed = 0;
  double held_out = 0.05;
};

class Batches {
 public:
  // UsageError if there are too few tokens for one sequence on either side.
  // `tokens` outlives it.
  Batches(const TokenSource& tokens, const BatchOptions& options);

  int64_t num_train() const;  // sequences until they begin again
  int64_t num_held_out() const;
  int64_t first_held_out() const { return first_held_out_; }  // token
  // length + 1 tokens each; training sequences are shuffled anew every time
  // all of them were used. Held-out sequences lie side by side.
  void train(int64_t number, std::span<int32_t> sequence) const;
  void held_out(int64_t number, std::span<int32_t> sequence) const;

 private:
  void read(int64_t first, std::span<int32_t> sequence) const;

  const TokenSource& tokens_;
  BatchOptions options_;
  int64_t first_held_out_;  // token
};

// Numbers below n in an order that looks random, without a list of them: a
// Feistel network over the next power of four, walked until it is below n.
//
//   Permutation order(1'000'000'000, seed);
//   int64_t first = order(0);
//
// Every number below n comes once. The same on every machine. Thread-safe.

class Permutation {
 public:
  // n from 1 to 2^62.
  Permutation(int64_t n, uint64_t key);

  int64_t operator()(int64_t i) const;  // 0 ≤ i < n

 private:
  uint64_t shuffle(uint64_t value) const;

  uint64_t n_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace canzona

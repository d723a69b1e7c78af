// Sequences in training order. The order depends only on the tokens, the length
// and the seed: sequence n is the same on any number of ranks, so the position
// of a run is a single number, the tokens consumed.
//
//   Batches batches(*tokens, {.length = 64, .seed = 1});
//   batches.train(consumed / 64 + i, sequence);   // 65 tokens: input, target
//
// Sequences begin every `length` tokens; the last token of one, which is only a
// target, is the first of the next. The fraction `held_out` at the end of the
// tokens is never trained on. Thread-safe.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/data/token_source.h"

namespace canzona::data {

struct BatchOptions {
  int64_t length = 0;
  uint64_t seed = 0;
  double held_out = 0.05;
};

class Batches {
 public:
  // Throws UsageError if there are too few tokens for one sequence on either
  // side. `tokens` must outlive this.
  Batches(const TokenSource& tokens, const BatchOptions& options);

  int64_t num_train() const;  // sequences in an epoch
  int64_t num_held_out() const;
  int64_t first_held_out() const { return first_held_out_; }  // token
  // A sequence has length + 1 tokens. Training sequences are reshuffled in
  // every epoch; held-out sequences are consecutive.
  void train(int64_t number, std::span<int32_t> sequence) const;
  void held_out(int64_t number, std::span<int32_t> sequence) const;

 private:
  void read(int64_t first, std::span<int32_t> sequence) const;

  const TokenSource& tokens_;
  BatchOptions options_;
  int64_t first_held_out_;  // token
};

// A pseudo-random permutation of the numbers below n, without storing it: a
// Feistel network over the next power of four, iterated until the result is
// below n.
//
//   Permutation order(1'000'000'000, seed);
//   int64_t first = order(0);
//
// Every number below n occurs once. The order is the same on every machine.
// Thread-safe.
class Permutation {
 public:
  // Requires 1 ≤ n ≤ 2^62.
  Permutation(int64_t n, uint64_t key);

  int64_t operator()(int64_t i) const;  // 0 ≤ i < n

 private:
  uint64_t shuffle(uint64_t value) const;

  uint64_t n_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace canzona::data

#include "canzona/data/batches.h"

#include <cmath>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/data/permutation.h"

namespace canzona {
namespace {

int64_t held_out_tokens(int64_t size, double share) {
  return static_cast<int64_t>(std::floor(static_cast<double>(size) * share));
}

// Of length + 1 tokens each, a length apart.
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

}  // namespace canzona

// Runs the decoder token by token, for sampling: keys and values of every layer
// are cached, so that a token costs one token's work.
//
//   TokenDecoder<float> model(config, shapes, engine, weights, 512);
//   std::span<const float> logits = model.read(prompt);
//   logits = model.read({&token, 1});
//
// Logits equal those of a decoder of the whole sequence, up to the order of
// sums in products of other sizes (fp32: about 1e-5 of the largest logit).
// Engine and weights must outlive it; all layers must be on this rank. At
// construction it reserves keys and values of `capacity` tokens, rounded up to
// a multiple of 64, and the activations of 64 tokens. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/model/decoder.h"

namespace canzona::model {

// Chooses the next token by its logits.
//
//   int32_t token = choose_token(logits, {.temperature = 0.8, .top_k = 40}, u);
//
// choose_token() is pure.

struct TokenChoice {
  double temperature = 0;  // 0: the largest logit, the first in a tie
  int64_t top_k = 0;       // only this many of the largest; 0: all
};

// `chance` in [0, 1) picks among the tokens in order of their numbers, with the
// probabilities softmax(logits / temperature). Logits that are not finite are
// never chosen; throws NumericalError if none is finite.
int32_t choose_token(std::span<const float> logits, const TokenChoice& choice,
                     double chance);

template <class Real>
class TokenDecoder {
 public:
  // config.length and config.micro_batch are ignored. Throws UsageError like
  // Decoder.
  TokenDecoder(const DecoderConfig& config, const Model& shapes, Engine& engine,
               Weights<Real>& weights, int64_t capacity);
  TokenDecoder(const TokenDecoder&) = delete;
  TokenDecoder& operator=(const TokenDecoder&) = delete;

  // Reads tokens, at least one, after those read before; they must fit into the
  // capacity. Returns the logits of the next token, valid until the next call.
  std::span<const Real> read(std::span<const int32_t> tokens);
  // Discards everything read.
  void restart() { set_count(0); }

  int64_t count() const { return past_.front().count; }  // tokens read
  int64_t capacity() const { return capacity_; }
  int64_t reserved() const;  // bytes

 private:
  void set_count(int64_t count);
  void read_many(std::span<const int32_t> tokens);

  int64_t capacity_;
  std::vector<Real> cache_;
  std::vector<PastTokens<Real>> past_;  // by layer
  Decoder<Real> many_;                  // without the head
  Decoder<Real> one_;
  std::vector<Real> stream_;  // the output of `many_`
  std::vector<Real> logits_;
};

}  // namespace canzona::model

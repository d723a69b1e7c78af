// The decoder token by token, for sampling: what it has read stays, as keys and
// values of every layer, so that a token costs one token's work.
//
//   TokenDecoder<float> model(config, shapes, engine, weights, 512);
//   std::span<const float> logits = model.read(prompt);
//   logits = model.read({&token, 1});
//
// Logits are those that a decoder of the whole sequence computes, up to the
// order of sums in products of other sizes (fp32: about 1e-5 of the largest
// logit). Engine and weights outlive it; all layers are here. Memory, reserved
// at construction: keys and values of `capacity` tokens, rounded up to a
// multiple of 64, and the activations of 64. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "canzona/model/decoder.h"

namespace canzona {

template <class Real>
class TokenDecoder {
 public:
  // config.length and config.micro_batch do not count here. UsageError as of a
  // Decoder.
  TokenDecoder(const DecoderConfig& config, const Model& shapes, Engine& engine,
               Weights<Real>& weights, int64_t capacity);
  TokenDecoder(const TokenDecoder&) = delete;
  TokenDecoder& operator=(const TokenDecoder&) = delete;

  // Reads tokens, at least one, behind those read before; there is room for
  // them. Returns the logits of what follows them, until the next call.
  std::span<const Real> read(std::span<const int32_t> tokens);
  // Forgets what was read.
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
  std::vector<Real> stream_;  // what `many_` gives
  std::vector<Real> logits_;
};

}  // namespace canzona

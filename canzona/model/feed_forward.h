// The feed-forward block of a layer, dense or with experts, and its memory.
//
//   FeedForward<float> feed(config, shapes, layer, parallel, engine, weights);
//   feed.forward(x, y, saved, scratch);     // then all-reduce y over tp
//
// y and dx are this tp rank's shares; memory belongs to the caller. One thread
// at a time; nothing is allocated after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>

#include "canzona/model/experts.h"
#include "canzona/model/parallel.h"

namespace canzona {

struct FeedBytes {
  int64_t saved = 0;    // from forward to backward
  int64_t scratch = 0;  // during a call
};

template <class Real>
FeedBytes feed_bytes(const DecoderConfig& config, const Parallel& parallel,
                     int64_t layer);

template <class Real>
class FeedForward {
 public:
  FeedForward(const DecoderConfig& config, const Model& shapes, int64_t layer,
              const Parallel& parallel, Engine& engine, Weights<Real>& weights);

  // If y is null, computes only what backward needs.
  void forward(const Real* x, Real* y, std::byte* saved, std::byte* scratch);
  void backward(const Real* x, const Real* dy, Real* dx, std::byte* saved,
                std::byte* scratch, Announce what);

  double balance_loss(const std::byte* saved) const;  // 0 without experts
  double comm_seconds() const;

 private:
  using Block = std::variant<Mlp<Real>, Experts<Real>>;
  static Block make_block(const DecoderConfig& config, const Model& shapes,
                          int64_t layer, const Parallel& parallel,
                          Engine& engine, Weights<Real>& weights);

  Block block_;
};

}  // namespace canzona

// The feed-forward block of a dense layer: down · (silu(gate·x) ∘ (up·x)), gate
// and up in one product.
//
//   Mlp<float> mlp(sizes, tensors, engine, weights);
//   mlp.forward(x, y, saved, scratch);      // then all-reduce y over tp
//
// Shaped like Experts (experts.h), which a layer has instead: y and dx are this
// tp rank's shares, `saved` is kept from forward to backward, memory belongs to
// the caller. One thread; nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "canzona/linalg/engine.h"
#include "canzona/model/sizes.h"
#include "canzona/model/tensors.h"
#include "canzona/model/views.h"
#include "canzona/model/weights.h"

namespace canzona {

template <class Real>
class Mlp {
 public:
  Mlp(const DecoderSizes& sizes, const LayerTensors& tensors, Engine& engine,
      Weights<Real>& weights)
      : sizes_(sizes), tensors_(tensors), engine_(engine), weights_(weights) {}

  static int64_t saved_bytes(const DecoderSizes& sizes);
  static int64_t scratch_bytes(const DecoderSizes& sizes);

  // With y null, only what backward needs.
  void forward(const Real* x, Real* y, std::byte* saved, std::byte* scratch);
  void backward(const Real* x, const Real* dy, Real* dx, std::byte* saved,
                std::byte* scratch, Announce what);

 private:
  Linear<Real> gate_up() const;
  Linear<Real> down() const;

  DecoderSizes sizes_;
  LayerTensors tensors_;
  Engine& engine_;
  Weights<Real>& weights_;
};

}  // namespace canzona

// Tools shared by all components of a decoder.
//
//   Layer<float> layer(tools, shapes, 3, parallel, nullptr);
#pragma once

#include "canzona/linalg/engine.h"
#include "canzona/model/attention.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/decoder_memory.h"
#include "canzona/model/parallel.h"
#include "canzona/model/sizes.h"
#include "canzona/model/weights.h"

namespace canzona {

// All of these must outlive the components.
template <class Real>
struct Tools {
  const DecoderConfig& config;
  const DecoderSizes& sizes;
  Engine& engine;
  Weights<Real>& weights;
  TpGroup<Real>& tp;
  const Space<Real>& space;
  Attention<Real>& attention;

  Real epsilon() const { return static_cast<Real>(config.norm_epsilon); }
};

}  // namespace canzona

// For tests: a decoder of all layers, with its weights and its engine.
//
//   Whole<float> whole(trial);
//   whole.step(trial);
//   whole.weights.gradients;
#pragma once

#include <cstdint>
#include <memory>

#include "canzona/linalg/engine.h"
#include "canzona/model/decoder.h"
#include "canzona/model/test_decoder.h"

namespace canzona::model {

template <class Real>
struct Whole {
  explicit Whole(const DecoderTrial& trial, int64_t in_flight = 1)
      : weights(trial, whole_model(trial.config)),
        decoder(trial.config, trial.shapes, whole_model(trial.config), *engine,
                weights, in_flight) {}

  double step(const DecoderTrial& trial, bool last = true) {
    const double loss = decoder.forward(0, trial.sequences, nullptr, nullptr);
    decoder.backward(0, trial.sequences, nullptr, nullptr, last);
    return loss;
  }

  std::unique_ptr<Engine> engine = make_cpu_engine();
  TrialWeights<Real> weights;
  Decoder<Real> decoder;
};

}  // namespace canzona::model

// A decoder as a trainer uses it: on a CPU (decoder.h), or on a GPU in bf16
// with fp32 gradients.
//
//   auto decoder = make_device_decoder(config, shapes, engine, weights);
//   decoder->forward(passes, losses);
//   decoder->backward(passes, true);
//   decoder->finish_losses();              // `losses` are filled in now
//
// A decoder on a device only issues its work: nothing is waited for except in
// finish_losses() and in calls that return numbers. It has all layers; its
// passes have neither input nor output.
//
// Weights and engine must outlive it. One thread at a time. All memory is
// reserved at construction.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "canzona/linalg/engine.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/weights.h"

namespace canzona::model {

// A micro-batch passing through the decoder.
template <class Real>
struct Pass {
  int64_t slot = 0;
  std::span<const int32_t> sequences;
  const Real* in = nullptr;  // forward: input; backward: output_gradient
  Real* out = nullptr;       // forward: output; backward: input_gradient
  int64_t counted = -1;      // evaluation: number of sequences that count; -1:
                             // all
};

template <class Real>
class TrainedDecoder {
 public:
  using Passes = std::span<const Pass<Real>>;

  virtual ~TrainedDecoder() = default;

  // Run forward and backward of micro-batches of different slots; decoder.h has
  // the details. `losses` must stay valid until finish_losses(): a decoder on a
  // device computes the losses of a forward in its backward.
  virtual void forward(Passes passes, std::span<double> losses) = 0;
  virtual void backward(Passes passes, bool last) = 0;
  // Fills in the losses of every forward() whose backward() has been called,
  // and waits for these alone.
  virtual void finish_losses() {}

  // Runs forward only, in the memory of slot 0, which must not be waiting for
  // backward. The mean is over the first `counted` sequences (-1: all); the
  // rest is padding.
  virtual double evaluate(std::span<const int32_t> sequences, const Real* input,
                          Real* output, int64_t counted = -1) = 0;

  // The largest logit of each layer and head (decoder.h); empty unless noted.
  virtual std::span<const Real> largest_logits() const { return {}; }
  virtual void forget_logits() {}

  virtual int64_t reserved() const = 0;              // bytes
  virtual double comm_seconds() const { return 0; }  // in its own collectives
  // The libraries, the GPU and the algorithms on which bits depend besides the
  // inputs, for comparing runs; empty on a CPU, whose bits follow from inputs.
  virtual std::string describe() const { return {}; }
};

// Makes the decoder of the engine's device, which must be a GPU. Throws
// UsageError that names what the device's decoder lacks (tp, pp, experts, notes
// of logits, a head_dim), or in a build without CUDA.
std::unique_ptr<TrainedDecoder<float>> make_device_decoder(
    const DecoderConfig& config, const Model& shapes, Engine& engine,
    DeviceWeights& weights, int64_t in_flight = 1, int64_t together = 1);

// Throws the same errors as far as they do not depend on the GPU.
void check_device_decoder(const DecoderConfig& config, const std::string& name);

// Returns the bytes that make_device_decoder() reserves; needs no GPU.
int64_t device_decoder_memory(const DecoderConfig& config,
                              int64_t in_flight = 1, int64_t together = 1);

}  // namespace canzona::model

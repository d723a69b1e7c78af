// The decoder of a rank: forward and backward of micro-batches through the
// layers that it has. docs/model.md has the formulas.
//
//   Decoder<float> decoder(config, shapes, parallel, engine, weights);
//   double loss = decoder.forward(0, sequences, nullptr, nullptr);
//   decoder.backward(0, sequences, nullptr, nullptr, true);
//
// A module's weights are awaited before each use, in forward and in backward,
// and released after it (weights.h). Micro-batches that run together share a
// use: all of them go through one layer, then through the next.
//
// Weights and engine must outlive it; the engine must be a CPU's. All memory is
// one block reserved at construction; nothing is allocated afterwards. All
// ranks of tp and ep must call together. One thread at a time.
//
// The same inputs give the same bits, whether or not layers are recomputed or
// divided among stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/decoder_memory.h"
#include "canzona/model/layers.h"
#include "canzona/model/trained_decoder.h"
#include "canzona/model/weights.h"

namespace canzona::model {

template <class Real>
class Decoder final : public TrainedDecoder<Real> {
 public:
  using Passes = typename TrainedDecoder<Real>::Passes;

  // `in_flight` is the number of micro-batches between forward and backward at
  // once (pipeline), `together` the most of them in one call of backward.
  // UsageError names what cannot be divided that way, or is not supported.
  Decoder(const DecoderConfig& config, const Model& shapes,
          const Parallel& parallel, Engine& engine, Weights<Real>& weights,
          int64_t in_flight = 1, int64_t together = 1);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // `sequences` are micro_batch x (length + 1) tokens, each the input and,
  // shifted by one, the target; stages with the embedding or the head read
  // them. `input` is tokens x hidden from the previous stage, null with the
  // embedding; `output` is for the next stage, null with the head. Returns the
  // mean loss over tokens, without balance_loss(); 0 without the head.
  double forward(int64_t slot, std::span<const int32_t> sequences,
                 const Real* input, Real* output);

  // Adds d(mean loss + balance loss)/d(parameter) of the micro-batch in `slot`
  // to the gradients. `output_gradient` comes from the next stage,
  // `input_gradient` goes to the previous one; null like output and input. Each
  // tensor is announced as soon as it is complete, the head's first and the
  // embedding last, together with a tied head. `last` says that nothing more is
  // added in this step.
  void backward(int64_t slot, std::span<const int32_t> sequences,
                const Real* output_gradient, Real* input_gradient, bool last);

  // The same for several micro-batches of different slots. The bits are those
  // of running them one after the other, except for the gradient of a tied head
  // on the embedding's stage, whose parts are added in another order.
  void forward(Passes passes, std::span<double> losses) override;
  void backward(Passes passes, bool last) override;

  double evaluate(std::span<const int32_t> sequences, const Real* input,
                  Real* output, int64_t counted = -1) override;

  // Computes the logits of every token, in chunks of tokens: `use` gets the
  // number of the first one and a row of this rank's vocabulary for each.
  // Memory and sequences are as for evaluate(); the last token of a sequence is
  // not read. Requires all layers to be on this rank.
  void logits(std::span<const int32_t> sequences, const UseLogits<Real>& use);

  // Makes evaluate() and logits() continue after what the layers have seen
  // before, with one PastTokens per layer, and append their tokens to it
  // (attention.h). Requires micro-batches of one sequence. `layers` must
  // outlive the use.
  void set_past(std::span<PastTokens<Real>> layers);

  // The largest logit of each of this rank's layers and heads since
  // forget_logits(), layer by layer; NaN if one was. Requires
  // DecoderConfig::notes_logits.
  std::span<const Real> largest_logits() const override {
    return {cut_.space.largest_logits, num_logits()};
  }
  void forget_logits() override;

  double balance_loss(int64_t slot) const;
  int64_t reserved() const override { return reserved_; }
  double comm_seconds() const override;  // in collectives of tp and ep so far

 private:
  Tools<Real> tools();
  void build_layers(const Model& shapes);
  void run(Passes passes, std::span<double> losses);
  void run_layers(Passes passes);
  void check_passes(Passes passes, bool waits);
  void check_sequences(std::span<const int32_t> sequences) const;
  void check_slot(int64_t slot, bool waits) const;
  void layer_forward(size_t layer, const Pass<Real>& pass);
  void layer_backward(size_t layer, const Pass<Real>& pass, Real* gradient,
                      Announce what);
  // Does `work` for each pass while the weights of a module, or all that the
  // head needs, are available.
  template <class Work>
  void with_module(int64_t module, Passes passes, const Work& work);
  template <class Work>
  void with_head(Passes passes, const Work& work);
  const Slot<Real>& slot_of(const Pass<Real>& pass) const {
    return cut_.slots[static_cast<size_t>(pass.slot)];
  }
  // The input of a layer or of the head, or the output for the next stage.
  Real* stream(const Pass<Real>& pass, size_t i) const {
    const std::vector<Real*>& inputs = slot_of(pass).inputs;
    return i < inputs.size() ? inputs[i] : pass.out;
  }
  int64_t layer_module(size_t layer) const {
    return parallel_.first_layer + 1 + static_cast<int64_t>(layer);
  }
  int64_t stream_size() const { return sizes_.tokens() * sizes_.hidden; }
  size_t num_logits() const {
    if (cut_.space.largest_logits == nullptr) return 0;
    return static_cast<size_t>(parallel_.num_layers * sizes_.heads());
  }

  DecoderConfig config_;
  Parallel parallel_;
  DecoderSizes sizes_;
  OuterTensors tensors_;
  Engine& engine_;
  Weights<Real>& weights_;
  TpGroup<Real> tp_;
  struct Release {
    Memory* source = nullptr;
    void operator()(std::byte* memory) const { source->release(memory); }
  };
  int64_t together_;
  int64_t reserved_;
  std::unique_ptr<std::byte, Release> memory_;
  DecoderMemory<Real> cut_;
  Attention<Real> attention_;
  Embedding<Real> embedding_;
  Head<Real> head_;
  std::vector<Layer<Real>> layers_;
  std::span<PastTokens<Real>> past_;  // empty: new sequences
  std::vector<bool> waits_;           // slots between forward and backward
  std::vector<double> balance_;
};

}  // namespace canzona::model

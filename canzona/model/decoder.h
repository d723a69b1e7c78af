// The decoder of a rank: forward and backward of micro-batches through the
// layers that it has. docs/model.md has the formulas.
//
//   Decoder<float> decoder(config, shapes, parallel, engine, weights);
//   double loss = decoder.forward(0, sequences, nullptr, nullptr);
//   decoder.backward(0, sequences, nullptr, nullptr, true);
//
// A module's weights are waited for before each use, in forward and in
// backward, and released after it (weights.h). Micro-batches that go together
// share the use: all of them through one layer, then through the next.
//
// Weights and engine outlive it; the engine is a CPU's. All memory is one block
// reserved at construction; nothing is allocated afterwards. All ranks of tp
// and ep call together. One thread.
//
// The same inputs give the same bits; layers that are recomputed, or dealt to
// several stages, give those of layers that are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/model/decoder_config.h"
#include "canzona/model/decoder_memory.h"
#include "canzona/model/head.h"
#include "canzona/model/layer.h"
#include "canzona/model/parallel.h"
#include "canzona/model/weights.h"

namespace canzona {

// A micro-batch on its way through the decoder.
template <class Real>
struct Pass {
  int64_t slot = 0;
  std::span<const int32_t> sequences;
  const Real* in = nullptr;  // forward: the input; backward: output_gradient
  Real* out = nullptr;       // forward: the output; backward: input_gradient
  int64_t counted = -1;      // of an evaluation: its first sequences; -1: all
};

template <class Real>
class Decoder {
 public:
  using Passes = std::span<const Pass<Real>>;

  // `in_flight`: micro-batches between forward and backward at once (pipeline);
  // `together`: the most of them in one call of backward. UsageError names what
  // cannot be cut so, or is asked for and not supported.
  Decoder(const DecoderConfig& config, const Model& shapes,
          const Parallel& parallel, Engine& engine, Weights<Real>& weights,
          int64_t in_flight = 1, int64_t together = 1);
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  // `sequences`: micro_batch x (length + 1) tokens, each the input and, shifted
  // by one, the target; read by stages with the embedding or the head. `input`:
  // tokens x hidden from the stage before, null with the embedding; `output`:
  // for the next one, null with the head. Returns the mean loss over tokens,
  // without balance_loss(); 0 without the head.
  double forward(int64_t slot, std::span<const int32_t> sequences,
                 const Real* input, Real* output);

  // Takes the micro-batch in `slot`: adds d(mean loss + balance
  // loss)/d(parameter) to the gradients. `output_gradient` comes from the next
  // stage, `input_gradient` goes to the one before; null like output and input.
  // Each tensor is announced as soon as it is complete, the head's first, the
  // embedding last, and with it a tied head. `last`: nothing more is added in
  // this step.
  void backward(int64_t slot, std::span<const int32_t> sequences,
                const Real* output_gradient, Real* input_gradient, bool last);

  // Several micro-batches, of different slots. The bits are those of one after
  // the other, but for the gradient of a tied head on one stage with the
  // embedding, whose parts are added in another order.
  void forward(Passes passes, std::span<double> losses);
  void backward(Passes passes, bool last);

  // Forward alone, in the memory of slot 0, which must not wait for backward.
  // The mean is over the first `counted` sequences, the rest fills the
  // micro-batch; -1: all count.
  double evaluate(std::span<const int32_t> sequences, const Real* input,
                  Real* output, int64_t counted = -1);

  // The logits of every token, some tokens after others: `use` gets the number
  // of the first of them and a row of this rank's vocabulary for each. Memory
  // and sequences as for evaluate(); the last token of a sequence is not read.
  // Requires all layers to be here.
  void logits(std::span<const int32_t> sequences, const UseLogits<Real>& use);

  // From here on, evaluate() and logits() go on behind what layers have seen
  // before, one for each of them, and add their tokens to it (attention.h):
  // micro-batches of one sequence. It outlives the use.
  void set_past(std::span<PastTokens<Real>> layers);

  double balance_loss(int64_t slot) const;
  int64_t reserved() const { return reserved_; }  // bytes
  double comm_seconds() const;  // in collectives of tp and ep, so far

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
  // Work for each pass, while the weights of a module, or all that the head
  // needs, are there.
  template <class Work>
  void with_module(int64_t module, Passes passes, const Work& work);
  template <class Work>
  void with_head(Passes passes, const Work& work);
  const Slot<Real>& slot_of(const Pass<Real>& pass) const {
    return cut_.slots[static_cast<size_t>(pass.slot)];
  }
  // The input of a layer, of the head, or what goes to the next stage.
  Real* stream(const Pass<Real>& pass, size_t i) const {
    const std::vector<Real*>& inputs = slot_of(pass).inputs;
    return i < inputs.size() ? inputs[i] : pass.out;
  }
  int64_t layer_module(size_t layer) const {
    return parallel_.first_layer + 1 + static_cast<int64_t>(layer);
  }
  int64_t stream_size() const { return sizes_.tokens() * sizes_.hidden; }

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
  std::span<PastTokens<Real>> past_;  // empty: sequences begin
  std::vector<bool> waits_;           // slots between forward and backward
  std::vector<double> balance_;
};

}  // namespace canzona

#include <gtest/gtest.h>

#include "canzona/base/test_allocations.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/model/decoder.h"
#include "canzona/model/test_decoder.h"
#include "canzona/model/test_whole.h"

namespace canzona::model::decoder_allocations_test {
namespace {

// Weights that record nothing.
class SilentWeights : public TrialWeights<float> {
 public:
  using TrialWeights::TrialWeights;
  void wait(int32_t) override {}
  void release(int32_t) override {}
  void ready(int32_t, bool) override {}
};

void step(Decoder<float>& decoder, const DecoderTrial& trial) {
  decoder.forward(0, trial.sequences, nullptr, nullptr);
  decoder.backward(0, trial.sequences, nullptr, nullptr, true);
  decoder.evaluate(trial.sequences, nullptr, nullptr);
}

DecoderConfig mixed_decoder(Recompute recompute) {
  DecoderConfig config = small_decoder();
  config.architecture.experts = {.count = 4, .ffn = 6, .first_layer = 1};
  config.recompute = recompute;
  config.length = 130;
  return config;
}

TEST(DecoderAllocations, NoneInForwardAndBackward) {
  for (const Recompute recompute :
       {Recompute::kOff, Recompute::kMlp, Recompute::kLayer}) {
    const DecoderTrial trial(mixed_decoder(recompute));
    const Parallel whole = whole_model(trial.config);
    const auto engine = make_cpu_engine();
    SilentWeights weights(trial, whole);
    Decoder<float> decoder(trial.config, trial.shapes, whole, *engine, weights);
    step(decoder, trial);  // the engine's own memory
    const int64_t before = num_allocations();
    step(decoder, trial);
    EXPECT_EQ(num_allocations(), before);
  }
}

TEST(DecoderAllocations, NoneWithOtherRanks) {
  const DecoderTrial trial(mixed_decoder(Recompute::kLayer));
  run_ranks(2, [&](Communicator& world) {
    Parallel parallel = whole_model(trial.config);
    parallel.tp = &world;
    const auto engine = make_cpu_engine();
    SilentWeights weights(trial, parallel);
    Decoder<float> decoder(trial.config, trial.shapes, parallel, *engine,
                           weights);
    step(decoder, trial);
    world.barrier();
    const int64_t before = num_allocations();
    world.barrier();
    step(decoder, trial);
    world.barrier();
    EXPECT_EQ(num_allocations(), before);
    world.barrier();
  });
}

}  // namespace
}  // namespace canzona::model::decoder_allocations_test

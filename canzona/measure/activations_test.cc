// Compares the planner's estimate of activations, which knows only shapes, with
// what the decoder itself reserves.
#include "canzona/sim/activations.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "canzona/model/decoder_memory.h"

namespace canzona::measure::trials_activations_test {
namespace {

// The estimate leaves out attention's scratch for one sequence, which does not
// grow with the batch, and the alignment of arrays: little for 1024 tokens,
// more for the 128 of the tiny decoder.
constexpr double kToleranceOfSmall = 0.03;
constexpr double kToleranceOfTiny = 0.15;

Architecture architecture(int64_t layers, int64_t hidden, int64_t ffn,
                          int64_t head_dim) {
  Architecture out;
  out.layers = layers;
  out.hidden = hidden;
  out.ffn = ffn;
  out.vocab = 256;
  out.heads = 8;
  out.kv_heads = 4;
  out.head_dim = head_dim;
  out.tied = true;
  out.qk_norm = true;
  return out;
}

// The sizes are those of the presets of `canzona train`.
DecoderConfig tiny() {
  return {.architecture = architecture(4, 128, 384, 16),
          .length = 64,
          .micro_batch = 2};
}
DecoderConfig small() {
  return {.architecture = architecture(6, 384, 768, 64),
          .length = 128,
          .micro_batch = 8};
}

void expect_near_reserved(const DecoderConfig& config, const Mesh& mesh,
                          int64_t micro_batches, double tolerance) {
  const Model model = decoder_shapes(config, "decoder");
  const int64_t layers = config.architecture.layers / mesh.pp;
  int64_t reserved = 0;
  for (int32_t stage = 0; stage < mesh.pp; ++stage) {
    Parallel part;
    part.first_layer = stage * layers;
    part.num_layers = layers;
    part.has_embedding = stage == 0;
    part.has_head = stage == mesh.pp - 1;
    part.planned_tp = mesh.tp;
    const int64_t own = decoder_memory<float>(
        config, part, std::min<int64_t>(mesh.pp - stage, micro_batches));
    reserved = std::max(reserved, own);
  }
  const int64_t estimated =
      activation_bytes(model, mesh,
                       {.tokens = config.tokens(),
                        .num_micro_batches = micro_batches,
                        .dtype = DType::kFp32,
                        .recompute = config.recompute == Recompute::kLayer});
  EXPECT_NEAR(static_cast<double>(estimated) / static_cast<double>(reserved), 1,
              tolerance)
      << to_string(mesh) << ", hidden " << config.architecture.hidden
      << (config.recompute == Recompute::kLayer ? ", recomputed" : "");
}

TEST(EstimatedActivations, AreNearWhatTheDecoderReserves) {
  for (const char* mesh : {"dp=1", "dp=4,tp=2", "pp=2", "tp=4,pp=2"})
    for (const Recompute recompute : {Recompute::kOff, Recompute::kLayer}) {
      DecoderConfig first = tiny(), second = small();
      first.recompute = second.recompute = recompute;
      expect_near_reserved(first, parse_mesh(mesh), 4, kToleranceOfTiny);
      expect_near_reserved(second, parse_mesh(mesh), 4, kToleranceOfSmall);
    }
}

}  // namespace
}  // namespace canzona::measure::trials_activations_test

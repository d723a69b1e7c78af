// Training on a GPU gives the same bits however it is carried out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "canzona/base/test_folder.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/train/test_training.h"

namespace canzona::train::train_cuda_test {
namespace {

// The last loss, the parameters and the states.
std::string hash_of(const TestOutcome& outcome) {
  EXPECT_FALSE(outcome.steps.empty());
  return cat(outcome.steps.back().loss, " ", outcome.result.eval_loss, " ",
             outcome.result.digest, " ", outcome.result.state_digest);
}

class TrainOnGpu : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::string why;
    if (!find_cuda_device(&why)) GTEST_SKIP() << why;
  }

  // The parameter says whether attention is plain.
  static TestRun gpu_run(const std::string& mesh, const std::string& zero,
                         Recompute recompute = Recompute::kOff) {
    TestRun run{.mesh = mesh, .zero = zero, .steps = 20};
    run.device = "cuda";
    run.parameters = DType::kBf16;
    run.num_tokens = 40000;
    run.eval_sequences = 3;
    run.adjust = [recompute](TrainSettings& settings) {
      DecoderConfig& decoder = settings.decoder;
      decoder.architecture = {.layers = 3,
                              .hidden = 128,
                              .ffn = 192,
                              .vocab = 40,
                              .heads = 4,
                              .kv_heads = 2,
                              .head_dim = 64,
                              .tied = true,
                              .qk_norm = true};
      decoder.length = 70;
      decoder.recompute = recompute;
      decoder.plain_attention = GetParam();
      settings.eval_every = 0;
    };
    return run;
  }
  static std::string hash(const TestRun& run) { return hash_of(run_test(run)); }
};

TEST_P(TrainOnGpu, GivesOneHashOverRunsAndPlans) {
  for (const char* mesh : {"dp=1", "dp=2", "dp=4"}) {
    SCOPED_TRACE(mesh);
    const std::string right = hash(gpu_run(mesh, "zero1"));
    EXPECT_EQ(hash(gpu_run(mesh, "zero1")), right);
    EXPECT_EQ(hash(gpu_run(mesh, "zero1", Recompute::kMlp)), right);
    EXPECT_EQ(hash(gpu_run(mesh, "zero1", Recompute::kLayer)), right);
    TestRun repeated = gpu_run(mesh, "zero1");
    repeated.strategy = "replicated";
    EXPECT_EQ(hash(repeated), right);
    // With several micro-batches gradients that leave with each of them are
    // added in another order.
    const std::string leaving = hash(gpu_run(mesh, "zero2"));
    EXPECT_EQ(hash(gpu_run(mesh, "zero3")), leaving);
    EXPECT_EQ(hash(gpu_run(mesh, "zero3", Recompute::kLayer)), leaving);
  }
}

TEST_P(TrainOnGpu, LearnsAndGoesOnFromACheckpointWithTheSameBits) {
  const TestFolder folder;
  TestRun run = gpu_run("dp=2", "zero3");
  run.saving = {.every = 10,
                .store = {.folder = folder.path("ckpt"), .owner = "a test"}};
  const TestOutcome whole = run_test(run);
  EXPECT_LT(whole.steps.back().loss, 0.9 * whole.steps.front().loss);
  run.saving = {};
  run.resume = LoadRequest{.folder = folder.path("ckpt"), .which = "10"};
  const TestOutcome rest = run_test(run);
  EXPECT_EQ(hash_of(rest), hash_of(whole));
  EXPECT_TRUE(rest.loaded->notes.empty());
  // The same checkpoint on other ranks has the same weights.
  run = gpu_run("dp=4", "zero1");
  run.resume = LoadRequest{.folder = folder.path("ckpt"), .which = "20"};
  EXPECT_EQ(run_test(run).result.digest, whole.result.digest);
}

TEST_P(TrainOnGpu, SkipsAStepEverywhereForOneRanksNan) {
  TestRun run = gpu_run("dp=2", "zero1");
  run.steps = 3;
  run.adamw_rate = std::numeric_limits<double>::quiet_NaN();
  const TestOutcome outcome = run_test(run);
  EXPECT_FALSE(outcome.steps[0].skipped);
  EXPECT_TRUE(outcome.steps[1].skipped);
  EXPECT_EQ(outcome.result.skipped_steps, 2);
}

INSTANTIATE_TEST_SUITE_P(Attention, TrainOnGpu, testing::Bool(),
                         [](const auto& plain) {
                           return plain.param ? "plain" : "cudnn";
                         });

}  // namespace
}  // namespace canzona::train::train_cuda_test

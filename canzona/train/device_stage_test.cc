// Training with a decoder on a device: nothing is waited for in a step, and the
// result is that of a device which works at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/base/test_folder.h"
#include "canzona/train/run_checks.h"
#include "canzona/train/test_device_decoder.h"
#include "canzona/train/test_training.h"
#include "canzona/train/train_rank.h"

namespace canzona::train::device_stage_test {
namespace {

TestRun device_run(const std::string& mesh, const std::string& zero) {
  TestRun run{.mesh = mesh, .zero = zero};
  run.parameters = DType::kBf16;
  run.eval_sequences = 2;
  run.adjust = [](TrainSettings& settings) {
    settings.make_device_decoder = make_test_device_decoder;
  };
  return run;
}

TestOutcome run_late(TestRun run, uint64_t seed, double eagerness = 0.3) {
  LateDevice device({.seed = seed, .eagerness = eagerness});
  run.make_engine = [&device] { return std::make_unique<LateEngine>(device); };
  return run_test(run);
}

void expect_same(const TestOutcome& a, const TestOutcome& b) {
  EXPECT_EQ(a.result.digest, b.result.digest);
  EXPECT_EQ(a.result.state_digest, b.result.state_digest);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].loss, b.steps[i].loss) << "step " << i + 1;
    EXPECT_EQ(a.steps[i].grad_norm, b.steps[i].grad_norm) << "step " << i + 1;
  }
}

// With several micro-batches a rank, bits depend on whether gradients leave
// with each of them, as on a CPU.
TEST(DeviceStage, GivesTheResultOfADeviceThatWorksAtOnce) {
  for (const char* mesh : {"dp=1", "dp=2", "dp=4"})
    for (const bool tied : {false, true}) {
      TestRun run = device_run(mesh, "zero2");
      run.tied = tied;
      const TestOutcome leaving = run_test(run);
      run.zero = "zero1";
      const TestOutcome staying = run_test(run);
      run.strategy = "replicated";
      expect_same(run_late(run, 6), staying);
      run.strategy = "balanced";
      for (const char* zero : {"zero1", "zero2", "zero3"}) {
        SCOPED_TRACE(testing::Message()
                     << mesh << " " << zero << (tied ? " tied" : ""));
        run.zero = zero;
        const bool leave = zero != std::string("zero1");
        expect_same(run_late(run, 7), leave ? leaving : staying);
        expect_same(run_late(run, 8, 0), leave ? leaving : staying);
      }
    }
}

TEST(DeviceStage, OtherGradientsGiveAnotherResult) {
  TestRun run = device_run("dp=2", "zero1");
  const TestOutcome one = run_test(run);
  run.micro_batch = 4;
  EXPECT_NE(run_test(run).result.digest, one.result.digest);
}

TEST(DeviceStage, GoesOnFromACheckpointWithTheSameBits) {
  const TestFolder folder;
  TestRun run = device_run("dp=2", "zero3");
  run.saving = {.every = 3,
                .store = {.folder = folder.path("ckpt"), .owner = "a test"}};
  const TestOutcome whole = run_late(run, 3);
  run.saving = {};
  run.resume = LoadRequest{.folder = folder.path("ckpt"), .which = "3"};
  const TestOutcome rest = run_late(run, 4);
  EXPECT_EQ(rest.result.digest, whole.result.digest);
  EXPECT_EQ(rest.result.state_digest, whole.result.state_digest);
  EXPECT_TRUE(rest.loaded->notes.empty());
  TestDeviceDecoder::name() = "another device";
  const TestOutcome there = run_late(run, 4);
  TestDeviceDecoder::name() = "a device for tests";
  EXPECT_EQ(there.result.digest, whole.result.digest);
  EXPECT_THAT(there.loaded->notes, testing::ElementsAre(testing::AllOf(
                                       testing::HasSubstr("a device for tests"),
                                       testing::HasSubstr("another device"),
                                       testing::HasSubstr("bits may differ"))));
}

TEST(DeviceStage, TracesModulesByTheDevicesClock) {
  Trace trace;
  TestRun run = device_run("dp=2", "zero3");
  run.steps = 1;
  run.adjust = [&](TrainSettings& settings) {
    settings.make_device_decoder = make_test_device_decoder;
    settings.runtime.trace = &trace;
  };
  run_late(run, 5);
  const std::string json = trace.json();
  EXPECT_THAT(json, testing::HasSubstr("GPU stream, modules"));
  EXPECT_THAT(json, testing::HasSubstr("\"backward\""));
}

TEST(DeviceStage, TellsTheModelsFlops) {
  TestRun run = device_run("dp=2", "zero1");
  run.adjust = [](TrainSettings& settings) {
    settings.make_device_decoder = make_test_device_decoder;
    settings.flops_per_token = 100;
    settings.product_flops_per_second = 1e6;
  };
  for (const StepMetrics& step : run_test(run).steps) {
    ASSERT_TRUE(step.flops_per_second && step.mfu);
    EXPECT_DOUBLE_EQ(*step.flops_per_second, 100 * step.tokens_per_second);
    EXPECT_DOUBLE_EQ(*step.mfu, *step.flops_per_second / 1e6);
  }
}

std::string refusal(TestRun run) {
  try {
    run_test(run);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(DeviceStage, RefusesWhatDoesNotExistByName) {
  EXPECT_THAT(refusal(device_run("dp=2,tp=2", "zero1")),
              testing::HasSubstr("mesh dp=2,tp=2"));
  EXPECT_THAT(refusal(device_run("pp=2", "zero1")),
              testing::HasSubstr("mesh pp=2"));
  TestRun run = device_run("dp=1", "zero1");
  run.adjust = [](TrainSettings& settings) {
    settings.qk_clip.emplace();
    settings.make_device_decoder = make_test_device_decoder;
  };
  EXPECT_THAT(refusal(run), testing::HasSubstr("QK-clip"));
}

TEST(MakeInitial, GivesTheSameOnAnyNumberOfThreads) {
  const TrainSettings settings = test_settings({});
  const Model model = decoder_shapes(settings.decoder, "test");
  for (const Tensor& tensor : model.tensors) {
    std::vector<float> right(static_cast<size_t>(tensor.elements()));
    std::vector<float> shared(right.size());
    make_initial(model, tensor, 5, 1, 0, right);
    for (const int64_t threads : {2, 7, 64}) {
      make_initial(model, tensor, 5, 1, 0, shared, threads);
      EXPECT_EQ(shared, right) << tensor.name << ", " << threads;
    }
  }
}

TEST(RequireSameDevice, NamesBothOfTwoThatDiffer) {
  const auto refused = [](const std::string& third) -> std::string {
    try {
      run_ranks(4, [&](Communicator& world) {
        require_same_device(world.rank() == 2 ? third : "H200, cuDNN 9.19",
                            world);
      });
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused("H200, cuDNN 9.19"), "");
  EXPECT_THAT(refused("H100, cuDNN 9.19"),
              testing::AllOf(testing::HasSubstr("rank 2"),
                             testing::HasSubstr("rank 0")));
}

}  // namespace
}  // namespace canzona::train::device_stage_test

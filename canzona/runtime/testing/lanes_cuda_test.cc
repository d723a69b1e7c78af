// Ranks on a GPU that only issue: collectives on lanes have the bits of those
// that wait, whatever is still under way.
#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <vector>

#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/number_stream.h"
#include "canzona/runtime/digest/logical_digest.h"
#include "canzona/runtime/testing/test_lane_groups.h"
#include "canzona/runtime/testing/test_late_trial.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/zero/test_zero_classes.h"

namespace canzona::lanes_cuda_test {
namespace {

class CudaLanes : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (!find_cuda_device(&why)) GTEST_SKIP() << why;
  }
};

TEST_F(CudaLanes, GiveTheSumsOfTheTree) {
  for (const bool checked : {false, true})
    check_lane_groups([] { return make_cuda_engine(); }, checked);
}

TEST_F(CudaLanes, GiveTheResultOfRanksThatWait) {
  Random random(17);
  for (const int32_t dp : {1, 2, 4, 8})
    for (int i = 0; i < 6; ++i) {
      ZeroVariant v =
          random_variant(random, random.pick(all_zero_sizes(dp)), 2);
      v.link = false;
      v.rule = random.pick<std::string>({"muon", "adamw", "shampoo", "soap"});
      v.prefetch = random.pick<int32_t>({0, 1, 5});
      if (random.coin()) v.parameters = ParameterDtype::kBf16;
      if (random.coin()) v.wire = GradientWire::kBf16;
      SCOPED_TRACE(to_string(v));
      LateTrial trial{
          .plan = zero_plan(toy_moe(), dp, v, "cuda"),
          .options = {.wire = v.wire, .overlap = v.overlap, .ordered = false},
          .steps = 4,
          .micro_batches = random.small(1, 3),
          .engine = "cuda"};
      const std::string right = run_late_trial(trial);
      trial.options.ordered = true;
      ASSERT_EQ(run_late_trial(trial), right);
    }
}

TEST_F(CudaLanes, AdamwHasTheBitsOfTheCpu) {
  for (const std::string zero : {"zero1", "zero3"})
    for (const std::string mesh : {"dp=4", "dp=2,tp=2", "dp=2,ep=2"}) {
      SCOPED_TRACE(cat(mesh, " ", zero));
      const auto run = [&](const std::string& device) {
        return run_late_trial({.plan = small_plan(toy_moe(), {.mesh = mesh,
                                                              .rule = "adamw",
                                                              .device = device,
                                                              .zero = zero}),
                               .micro_batches = 2,
                               .engine = device});
      };
      EXPECT_EQ(run("cuda"), run("cpu"));
    }
}

TEST_F(CudaLanes, NumbersAreMadeWithTheBitsOfTheCpu) {
  const auto gpu = make_cuda_engine(), cpu = make_cpu_engine();
  for (const auto kind :
       {NumberStream::Kind::kSlices, NumberStream::Kind::kManyMagnitudes,
        NumberStream::Kind::kNearlyNormal}) {
    const NumberStream stream{kind, 99, 0xF3CF0F3ULL, -21};
    const NumberRows rows{5, 301, 17, 1000, 305};
    const auto made = [&](Engine& engine) {
      EngineMemory memory(engine);
      const auto run = memory.zeros(17 * 305);
      fill_numbers(engine, reinterpret_cast<float*>(run.data), stream, rows);
      engine.synchronize();
      return memory.get<float>(run.data, 17 * 305);
    };
    EXPECT_EQ(made(*gpu), made(*cpu));
  }
}

TEST_F(CudaLanes, NumbersAreHashedWithTheSumsOfTheCpu) {
  const auto gpu = make_cuda_engine();
  EngineMemory memory(*gpu);
  constexpr uint64_t kSeed = 1234567;
  for (const NumberRows& rows :
       {NumberRows{.first = 3, .count = 1}, NumberRows{.count = 100'003},
        NumberRows{5, 301, 17, 1000, 305}, NumberRows{.count = 0}}) {
    std::vector<uint32_t> bits;
    for (uint64_t i = 0; i < 101'000; ++i)
      bits.push_back(static_cast<uint32_t>(bits_at(7, i)));
    std::vector<uint16_t> halves(bits.begin(), bits.end());
    const auto upload = [&](const auto& values) {
      const auto bytes = std::as_bytes(std::span(values));
      std::byte* there = memory.arena().take(std::ssize(bytes));
      gpu->upload(there, bytes.data(), std::ssize(bytes));
      return there;
    };
    const auto expected = [&](const auto& values) {
      LogicalDigest digest;
      for (int64_t r = 0; r < rows.rows; ++r)
        for (int64_t j = 0; j < rows.count; ++j) {
          const uint32_t one =
              values[static_cast<size_t>(r * rows.row_stride + j)];
          digest.add(
              kSeed,
              static_cast<int64_t>(rows.first) + r * rows.stream_stride + j,
              std::span<const uint32_t>(&one, 1));
        }
      return NumberSums{digest.words()[0], digest.words()[1]};
    };
    EXPECT_EQ(sum_hashes(*gpu, upload(bits), 4, kSeed, rows), expected(bits));
    EXPECT_EQ(sum_hashes(*gpu, upload(halves), 2, kSeed, rows),
              expected(halves));
  }
}

// The largest |g|, the norm and the factor, with small, large and no numbers.
TEST_F(CudaLanes, LookAtGradientsAsTheCpuDoes) {
  const auto gpu = make_cuda_engine(), cpu = make_cpu_engine();
  const auto look = [](Engine& engine, std::vector<float> values,
                       double limit) {
    EngineMemory memory(engine);
    const auto run = memory.put(values);
    const auto bytes = static_cast<int64_t>(sizeof(GradientNumbers));
    auto* numbers = reinterpret_cast<GradientNumbers*>(
        memory.zeros(bytes, DType::kBf16).data);
    const Engine::Stretch stretch{run, std::ssize(values)};
    engine.find_largest(numbers, {&stretch, 1});
    engine.judge(numbers);
    engine.add_squares(numbers, {&stretch, 1});
    engine.clip(numbers, limit);
    engine.scale_by(run, &numbers->factor, std::ssize(values));
    return std::pair(
        memory.get<std::byte>(reinterpret_cast<std::byte*>(numbers), bytes),
        memory.get<uint32_t>(run.data, std::ssize(values)));
  };
  for (const float scale : {0.0F, 1e-42F, 1e-20F, 1.0F, 1e30F})
    for (const double limit : {0.0, 0.5}) {
      std::vector<float> values;
      for (uint64_t i = 0; i < 10007; ++i)
        values.push_back(uniform_at(3, i) * scale);
      EXPECT_EQ(look(*gpu, values, limit), look(*cpu, values, limit)) << scale;
      values[77] = std::numeric_limits<float>::infinity();
      EXPECT_EQ(look(*gpu, values, limit), look(*cpu, values, limit)) << scale;
    }
}

TEST_F(CudaLanes, TakeAStreamOfTheCallers) {
  EXPECT_THROW(make_cuda_engine(-1, nullptr), UsageError);
  EXPECT_THROW(make_cuda_engine(1000, nullptr), UsageError);
  EXPECT_EQ(make_cuda_engine(0, nullptr)->kind(), "cuda");
}

}  // namespace
}  // namespace canzona::lanes_cuda_test

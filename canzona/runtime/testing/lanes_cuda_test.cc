// Ranks on a GPU whose calls only issue work: collectives on lanes have the
// bits of those that wait, whatever is still in progress.
#include <gtest/gtest.h>

#include <limits>
#include <span>
#include <vector>

#include "canzona/base/json_reader.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/number_stream.h"
#include "canzona/runtime/digest/rank_digest.h"
#include "canzona/runtime/testing/test_lane_groups.h"
#include "canzona/runtime/testing/test_late_trial.h"
#include "canzona/runtime/testing/test_plans.h"
#include "canzona/runtime/zero/test_zero_classes.h"

namespace canzona::runtime::lanes_cuda_test {
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

TEST_F(CudaLanes, WriteWordsAndWaitForThem) {
  const auto engine = make_cuda_engine();
  const auto lane = engine->make_lane(), other = engine->make_lane();
  std::atomic<uint32_t>&told = lane->make_word(), &asked = lane->make_word();
  const auto stopped = lane->make_event(), gone_on = lane->make_event(),
             beside = other->make_event();
  lane->write(told, 5);
  lane->record_in(*stopped);
  lane->wait_until(asked, 3);
  lane->write(told, 6);
  lane->record_in(*gone_on);
  stopped->wait();
  EXPECT_EQ(told.load(), 5U);
  asked.store(2);
  other->record_in(*beside);
  beside->wait();  // another lane continues
  EXPECT_FALSE(gone_on->reached());
  asked.store(4);
  gone_on->wait();
  EXPECT_EQ(told.load(), 6U);
}

TEST_F(CudaLanes, IdleWorkTakesItsTime) {
  const auto engine = make_cuda_engine();
  const auto before = engine->make_timed_event(),
             after = engine->make_timed_event();
  engine->record_in(*before);
  engine->idle(2e-3);
  engine->record_in(*after);
  after->wait();
  EXPECT_GE(after->seconds_after(*before), 1.9e-3);
}

TEST_F(CudaLanes, ModelledLinksChangeNoResult) {
  for (const std::string zero : {"zero1", "hier:2", "zero3"})
    for (const std::string mesh : {"dp=4", "dp=2,tp=2"})
      for (const Overlap overlap :
           {Overlap::kNone, Overlap::kMain, Overlap::kBackground}) {
        SCOPED_TRACE(cat(mesh, " ", zero, " ", to_string(overlap)));
        LateTrial trial{
            .plan = small_plan(toy_model(),
                               {.mesh = mesh, .device = "cuda", .zero = zero}),
            .options = {.overlap = overlap},
            .micro_batches = 2,
            .engine = "cuda"};
        const std::string right = run_late_trial(trial);
        trial.link = LinkModel{20e9, 5e9, 2e-6, 2};
        ASSERT_EQ(run_late_trial(trial), right);
      }
}

// Measured by the GPU's clock, which has a limited resolution.
TEST_F(CudaLanes, SpansLastAsLongAsTheirLinksTake) {
  constexpr double kLatency = 300e-6;
  Trace trace;
  LateTrial trial{
      .plan = small_plan(toy_model(),
                         {.mesh = "dp=2", .device = "cuda", .zero = "zero3"}),
      .options = {.trace = &trace},
      .steps = 2,
      .engine = "cuda",
      .link = LinkModel{1e9, 1e9, kLatency, 2}};
  run_late_trial(trial);
  size_t found = 0;
  const Json json = parse_json(trace.json(), {});
  for (const Json& event : json.at("traceEvents")) {
    if (event.at("ph") != "X" || event.at("name") != "all-gather" ||
        event.at("args").at("bytes") == 0)
      continue;
    ++found;
    EXPECT_GE(double{event.at("dur")}, 0.95e6 * kLatency);
  }
  EXPECT_GT(found, 4U);
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
      if (random.coin()) v.parameters = DType::kBf16;
      if (random.coin()) v.wire = DType::kBf16;
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

// The largest |g|, the norm and the factor, for small, large and no numbers.
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
    auto* shared =
        reinterpret_cast<int64_t*>(memory.zeros(3, DType::kFp64).data);
    engine.find_largest(numbers, {&stretch, 1});
    engine.raise(shared, &numbers->largest);
    engine.judge_shared(numbers, shared, kInfinityBits);
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

// In runs of every alignment, between numbers that must stay as they are.
TEST_F(CudaLanes, ScaleAndLookAtGradientsAsTheCpuDoes) {
  const auto gpu = make_cuda_engine(), cpu = make_cpu_engine();
  const auto look = [](Engine& engine, std::vector<float> values, double by) {
    EngineMemory memory(engine);
    auto* first = reinterpret_cast<float*>(memory.put(values).data);
    const std::vector<Engine::ScaledStretch> runs = {
        {run_of(first + 1), 1},         {run_of(first + 5), 0},
        {run_of(first + 6), 7},         {run_of(first + 16), 8192},
        {run_of(first + 8301), 16'400}, {run_of(first + 24'704), 5000}};
    const auto bytes = static_cast<int64_t>(sizeof(GradientNumbers));
    auto* numbers = reinterpret_cast<GradientNumbers*>(
        memory.zeros(bytes, DType::kBf16).data);
    engine.scale_and_find_largest(numbers, runs, by);
    return std::pair(
        memory.get<std::byte>(reinterpret_cast<std::byte*>(numbers), bytes),
        memory.get<uint32_t>(reinterpret_cast<std::byte*>(first),
                             std::ssize(values)));
  };
  std::vector<float> values;
  for (uint64_t i = 0; i < 30'000; ++i) values.push_back(uniform_at(5, i));
  for (const double by : {1.0 / 28, 3e9, 1e-42, 0.0})
    EXPECT_EQ(look(*gpu, values, by), look(*cpu, values, by)) << by;
  for (const float odd : {std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::max()}) {
    values[8302] = odd;
    EXPECT_EQ(look(*gpu, values, 2), look(*cpu, values, 2)) << odd;
  }
}

TEST_F(CudaLanes, TakeAStreamOfTheCallers) {
  EXPECT_THROW(make_cuda_engine(-1, nullptr), UsageError);
  EXPECT_THROW(make_cuda_engine(1000, nullptr), UsageError);
  EXPECT_EQ(make_cuda_engine(0, nullptr)->kind(), "cuda");
}

}  // namespace
}  // namespace canzona::runtime::lanes_cuda_test

// Heads that are columns of a matrix are matrices of their own: a rule that
// cuts columns has the bits of one that gets every head as a matrix.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>

#include "canzona/base/error.h"
#include "canzona/rules/muon/facts.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::column_heads_test {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Sides {
  int64_t rows = 0;
  int64_t width = 0;  // of a head
  int64_t heads = 0;
};

std::vector<float> random_numbers(int64_t count, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) x = normal(engine);
  return out;
}

// Columns of one head of a row-major matrix.
std::vector<float> columns_of(const std::vector<float>& all, const Sides& s,
                              int64_t head) {
  std::vector<float> own;
  for (int64_t i = 0; i < s.rows; ++i)
    for (int64_t j = 0; j < s.width; ++j)
      own.push_back(
          all[static_cast<size_t>((i * s.heads + head) * s.width + j)]);
  return own;
}

RuleOptions of_heads(RuleOptions options, int64_t heads) {
  options.try_emplace("device", "cpu");
  options["column_heads"] = std::to_string(heads);
  return options;
}

void expect_heads_apart(const RuleOptions& options, const Sides& s,
                        bool fused) {
  const auto engine = make_cpu_engine();
  const int64_t cols = s.heads * s.width;
  const auto numbers = [&](uint64_t seed) {
    return random_numbers(s.rows * cols, seed);
  };
  TestTensor<float> whole(
      make_rule("muon", of_heads(options, s.heads), DType::kFp32),
      {s.rows, cols}, numbers(1));
  std::deque<TestTensor<float>> apart;
  for (int64_t h = 0; h < s.heads; ++h)
    apart.emplace_back(make_rule("muon", of_heads(options, 1), DType::kFp32),
                       Dims{s.rows, s.width}, columns_of(whole.weights, s, h));
  for (uint64_t step = 2; step < 5; ++step) {
    const std::vector<float> grad = numbers(step);
    const auto take = [&](TestTensor<float>& tensor,
                          const std::vector<float>& own) {
      fused ? tensor.step_whole(*engine, own, 0.02)
            : tensor.step(*engine, own, 0.02);
    };
    take(whole, grad);
    std::vector<float> moments;
    for (int64_t h = 0; h < s.heads; ++h) {
      TestTensor<float>& head = apart[static_cast<size_t>(h)];
      take(head, columns_of(grad, s, h));
      ASSERT_EQ(columns_of(whole.weights, s, h), head.weights)
          << "head " << h << " after step " << step;
      for (const float v : head.state("second_moment")) moments.push_back(v);
    }
    EXPECT_EQ(whole.state("second_moment"), moments);
  }
}

const std::vector<RuleOptions> kForms = {
    {},
    {{"precision", "fp32"}},
    {{"decay_form", "l2"}},
    {{"scale_shape", "last_two"}, {"scale", "original"}},
    {{"preset", "nanochat"}},
    {{"preset", "normuon"}},
    {{"preset", "nvidia-normuon"}},
    {{"preset", "nvidia-adamuon"}},
    {{"preset", "nvidia-namo"}},
    {{"preset", "muonh"}, {"equilibrate", "rows"}, {"weight_decay", "0.1"}},
};

TEST(ColumnHeads, HaveTheBitsOfMatricesOfTheirOwn) {
  for (const RuleOptions& options : kForms)
    for (const Sides& sides : {Sides{6, 4, 3}, Sides{3, 5, 2}, Sides{1, 1, 4},
                               Sides{7, 1, 2}, Sides{96, 80, 2}})
      for (const bool fused : {false, true}) {
        SCOPED_TRACE(options.empty() ? "" : options.begin()->second);
        SCOPED_TRACE(sides.rows);
        expect_heads_apart(options, sides, fused);
      }
}

TEST(ColumnHeads, StepInBatchesAsAlone) {
  const auto engine = make_cpu_engine();
  const RuleOptions options = of_heads({{"preset", "nanochat"}}, 4);
  const auto rule = make_rule("muon", options, DType::kFp32);
  const Dims dims{6, 20};
  const std::vector<float> in = random_numbers(3 * 120, 7);
  std::vector<float> together(in.size()), moments(3 * 4 * 6), alone(in.size()),
      own(moments.size());
  const auto transform = [&](int64_t from, int64_t count,
                             std::vector<float>& out,
                             std::vector<float>& state) {
    const ConstRun field = run_of(in.data() + from * 120);
    const canzona::Run states[] = {run_of(state.data() + from * 24)};
    rule->transform(*engine, {1, 0.1},
                    {.dims = dims,
                     .count = count,
                     .fields = {&field, 1},
                     .out = run_of(out.data() + from * 120),
                     .states = states});
  };
  transform(0, 3, together, moments);
  for (int64_t i = 0; i < 3; ++i) transform(i, 1, alone, own);
  EXPECT_EQ(together, alone);
  EXPECT_EQ(moments, own);
}

TEST(ColumnHeads, CostWhatTheirMatricesCost) {
  const MuonFacts one(RuleOptions{{"preset", "nvidia-normuon"}});
  const MatrixShape cut{2048, 2048, 16};
  EXPECT_EQ(one.work(cut).every_step, 16 * one.work({2048, 128}).every_step);
  EXPECT_EQ(one.algorithm(cut), one.algorithm({2048, 128}));
  EXPECT_EQ(one.states(cut)[0].shape, (std::vector<int64_t>{2048, 2048}));
  EXPECT_EQ(one.states(cut)[1].shape, (std::vector<int64_t>{16, 2048, 1}));
  EXPECT_EQ(one.strips({4096, 65536, 2}).strips, 1);
  const MuonFacts all(RuleOptions{{"column_heads", "16"}});
  EXPECT_EQ(all.work({2048, 2048}).every_step,
            16 * MuonFacts(RuleOptions{}).work({2048, 128}).every_step);
}

TEST(ColumnHeads, ThatDoNotDivideAreNamed) {
  const MuonFacts facts(RuleOptions{{"column_heads", "5"}});
  EXPECT_THAT(
      [&] {
        facts.work({4, 12});
      },
      ThrowsMessage<UsageError>(
          HasSubstr("5 heads do not divide the 12 columns")));
  EXPECT_THAT(
      [&] {
        facts.stack_of({2, 4, 10});
      },
      ThrowsMessage<UsageError>(HasSubstr("a tensor has 3 axes")));
}

}  // namespace
}  // namespace canzona::rules::column_heads_test

#include "canzona/linalg/cpu/stages/stages.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "canzona/base/master_bits.h"
#include "canzona/linalg/cpu/stages/table.h"

namespace canzona::linalg::stages_stages_test {
namespace {

template <class Real>
std::vector<Real> numbers(int64_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal;
  std::vector<Real> values(static_cast<size_t>(count));
  for (Real& value : values) value = static_cast<Real>(normal(generator));
  return values;
}

TEST(CpuMomentum, KeepsAnAverageAndLooksAhead) {
  std::vector<double> grad = {1, 2}, momentum = {4, -4}, out(2);
  cpu_momentum({.grad = run_of(std::as_const(grad).data()),
                .momentum = run_of(momentum.data()),
                .out = run_of(out.data()),
                .blend = {0.75, 0.25, 0.25, 0.75}},
               2);
  EXPECT_EQ(momentum, (std::vector<double>{3.25, -2.5}));
  EXPECT_EQ(out, (std::vector<double>{2.6875, -1.375}));
}

TEST(CpuMomentum, AddsDecayToTheGradientAsItReadsIt) {
  const std::vector<float> grad = {1}, weights = {8};
  std::vector<float> momentum = {0}, out(1);
  cpu_momentum({.grad = run_of(grad.data()),
                .weights = run_of(weights.data()),
                .l2 = 0.5,
                .momentum = run_of(momentum.data()),
                .out = run_of(out.data())},
               1);
  EXPECT_EQ(out[0], 5);
  cpu_momentum({.grad = run_of(grad.data()),
                .weights = run_of(weights.data()),
                .l2 = 0.5,
                .out = run_of(out.data())},
               1);
  EXPECT_EQ(out[0], 5) << "without momentum";
}

TEST(CpuApply, DecaysBeforeOrAfterTheUpdate) {
  std::vector<double> weights = {8};
  const std::vector<double> update = {2};
  cpu_apply(run_of(weights.data()), run_of(update.data()), {0.5, 1, 1}, 1);
  EXPECT_EQ(weights[0], 2);
  cpu_apply(run_of(weights.data()), run_of(update.data()), {1, 3, 0.5}, 1);
  EXPECT_EQ(weights[0], -2);
}

TEST(CpuApply, CautiousDecaySparesWeightsThatTheUpdateMovesAway) {
  std::vector<double> weights = {8, 8, 0, -8, -8, 8};
  const std::vector<double> update = {2, -2, 2, -2, 2, 0};
  cpu_apply(run_of(weights.data()), run_of(update.data()),
            {.keep_before = 0.5, .step = 1, .keep_after = 2, .cautious = true},
            6);
  EXPECT_EQ(weights, (std::vector<double>{4, 20, -4, -4, -20, 8}));
}

TEST(CpuApply, CautiousDecayHasTheSameBitsWhereverARunIsCut) {
  const int64_t count = 1000;
  const auto update = numbers<float>(count, 1);
  const auto before = numbers<float>(count, 2);
  const Apply apply{0.99, 0.01, 0.999, true};
  auto whole = before;
  cpu_apply(run_of(whole.data()), run_of(update.data()), apply, count);
  for (int64_t cut : {1, 7, 16, 500, 999}) {
    auto parts = before;
    cpu_apply(run_of(parts.data()), run_of(update.data()), apply, cut);
    cpu_apply(run_of(parts.data() + cut), run_of(update.data() + cut), apply,
              count - cut);
    EXPECT_EQ(parts, whole) << cut;
  }
}

TEST(CpuAdam, DividesTheFirstMomentByTheRootOfTheSecond) {
  const std::vector<double> grad = {4};
  std::vector<double> m = {2}, v = {16}, out(1);
  cpu_adam(run_of(grad.data()), run_of(m.data()), run_of(v.data()),
           run_of(out.data()), {0.5, 0.5, 0.75, 0.25, 2, 1, 0.5, 1}, 1);
  EXPECT_EQ(m[0], 3);
  EXPECT_EQ(v[0], 16);
  EXPECT_EQ(out[0], (2 * 3 + 4) / (4 * 0.5 + 1));
}

TEST(CpuAdam, AppliedAtOnceItGivesTheSameBits) {
  for (int64_t count : {0, 1, 15, 16, 33, 1000}) {
    const auto grad = numbers<float>(count, 1);
    auto m = numbers<float>(count, 2), v = numbers<float>(count, 3);
    for (float& x : v) x = std::fabs(x);
    auto weights = numbers<float>(count, 4);
    auto m2 = m, v2 = v, weights2 = weights;
    std::vector<float> update(static_cast<size_t>(count));
    const AdamCoefficients adam{0.9, 0.1, 0.95, 0.05, 1.1, 0.2, 1.3, 1e-8};
    const Apply apply{0.99, 0.01, 0.999};
    cpu_adam(run_of(grad.data()), run_of(m.data()), run_of(v.data()),
             run_of(update.data()), adam, count);
    cpu_apply(run_of(weights.data()), run_of(std::as_const(update).data()),
              apply, count);
    cpu_adam_apply(run_of(grad.data()), run_of(m2.data()), run_of(v2.data()),
                   run_of(weights2.data()), adam, apply, count);
    EXPECT_EQ(weights, weights2);
    EXPECT_EQ(m, m2);
    EXPECT_EQ(v, v2);
  }
}

TEST(CpuAdam, MayWriteOverItsGradient) {
  auto grad = numbers<float>(100, 1);
  const auto original = grad;
  std::vector<float> v(100, 1), v2(100, 1), out(100);
  const AdamCoefficients adam{0, 0, 0.5, 0.5, 0, 1, 1, 1e-3};
  cpu_adam(run_of(original.data()), {}, run_of(v.data()), run_of(out.data()),
           adam, 100);
  cpu_adam(run_of(std::as_const(grad).data()), {}, run_of(v2.data()),
           run_of(grad.data()), adam, 100);
  EXPECT_EQ(grad, out);
}

TEST(CpuAllFinite, FindsWhatIsNotAnywhere) {
  for (int64_t count : {1, 31, 5000}) {
    for (double bad : {std::numeric_limits<double>::infinity(),
                       -std::numeric_limits<double>::infinity(),
                       std::numeric_limits<double>::quiet_NaN()}) {
      auto values = numbers<float>(count, 7);
      EXPECT_TRUE(cpu_all_finite(run_of(std::as_const(values).data()), count));
      values[static_cast<size_t>(count - 1)] = static_cast<float>(bad);
      EXPECT_FALSE(cpu_all_finite(run_of(std::as_const(values).data()), count));
      std::vector<double> wide(values.begin(), values.end());
      EXPECT_FALSE(cpu_all_finite(run_of(std::as_const(wide).data()), count));
    }
  }
  EXPECT_TRUE(cpu_all_finite(run_of(static_cast<const float*>(nullptr)), 0));
}

TEST(CpuAllFinite, KnowsTheLargestAndTheSmallestNumbers) {
  const std::vector<float> edges = {std::numeric_limits<float>::max(),
                                    std::numeric_limits<float>::denorm_min(),
                                    -std::numeric_limits<float>::max(), 0};
  EXPECT_TRUE(cpu_all_finite(run_of(edges.data()), 4));
}

TEST(CpuRoundToBf16, TakesTheNearestAndTheEvenOne) {
  const auto rounded = [](uint32_t bits) {
    const auto value = std::bit_cast<float>(bits);
    uint16_t result = 0;
    cpu_round_to_bf16(&result, &value, 1);
    return result;
  };
  EXPECT_EQ(rounded(0x3f800000), 0x3f80);
  EXPECT_EQ(rounded(0x3f808000), 0x3f80) << "tie to even";
  EXPECT_EQ(rounded(0x3f818000), 0x3f82) << "tie to even";
  EXPECT_EQ(rounded(0x3f808001), 0x3f81);
  EXPECT_EQ(rounded(0x7f7fffff), 0x7f80) << "beyond the largest";
  EXPECT_EQ(rounded(0xff800000), 0xff80);
  EXPECT_EQ(rounded(0x7f800001) & 0x7fff, 0x7fc0) << "NaN";
}

// Every instruction set gives the same bits at every offset and length.
template <class Real>
std::vector<Real> run_all(const StageKernels<Real>& kernels, int64_t offset,
                          int64_t count) {
  const auto grad = numbers<Real>(count + offset, 1);
  auto m = numbers<Real>(count + offset, 2);
  auto v = numbers<Real>(count + offset, 3);
  for (Real& x : v) x = std::fabs(x);
  auto w = numbers<Real>(count + offset, 4);
  std::vector<Real> out(static_cast<size_t>(count + offset));
  const Real c = static_cast<Real>(0.1);
  kernels.momentum({grad.data() + offset, w.data() + offset, m.data() + offset,
                    out.data() + offset, c, 1 - c, c, c, 1 - c},
                   count);
  kernels.apply(w.data() + offset, out.data() + offset, 1 - c, c, 1 - c, count);
  kernels.adam(
      {grad.data() + offset, m.data() + offset, v.data() + offset,
       out.data() + offset, nullptr, 1 - c, c, 1 - c, c, c, c, c, c, 1, 1, 1},
      count);
  kernels.axpby(out.data() + offset, c, w.data() + offset, c, count);
  for (const auto* part : {&m, &v, &w})
    out.insert(out.end(), part->begin() + offset, part->end());
  out.erase(out.begin(), out.begin() + offset);
  return out;
}

TEST(StageTables, AllGiveTheSameBitsAtEveryOffset) {
  for (int64_t count : {0, 1, 7, 16, 31, 100}) {
    const auto expected = run_all(portable_stages().fp32, 0, count);
    const auto expected64 = run_all(portable_stages().fp64, 0, count);
    for (const StageTable* table : usable_stages()) {
      EXPECT_EQ(run_all(table->fp32, 0, count), expected) << table->name;
      EXPECT_EQ(run_all(table->fp64, 0, count), expected64) << table->name;
    }
  }
}

TEST(StageTables, AnElementsBitsDoNotDependOnItsPlace) {
  const auto values = numbers<float>(67, 9);
  for (const StageTable* table : usable_stages()) {
    auto whole = values;
    table->fp32.apply(whole.data(), values.data(), 0.9F, 0.1F, 0.7F, 67);
    for (int64_t cut : {1, 5, 16, 40}) {
      auto parts = values;
      table->fp32.apply(parts.data(), values.data(), 0.9F, 0.1F, 0.7F, cut);
      table->fp32.apply(parts.data() + cut, values.data() + cut, 0.9F, 0.1F,
                        0.7F, 67 - cut);
      EXPECT_EQ(parts, whole) << table->name << " cut at " << cut;
    }
  }
}

TEST(StageTables, SplitAndJoinMastersAlike) {
  for (int64_t count : {0, 1, 7, 16, 31, 100}) {
    std::vector<float> masters = numbers<float>(count, 5);
    for (size_t i = 0; i < masters.size(); i += 3)
      masters[i] =
          std::bit_cast<float>(std::bit_cast<uint32_t>(masters[i]) | 0x8000U);
    for (const StageTable* table : usable_stages()) {
      std::vector<uint16_t> weights(masters.size()), rest(masters.size());
      std::vector<uint16_t> rounded(masters.size());
      std::vector<float> back(masters.size());
      table->split_masters(weights.data(), rest.data(), masters.data(), count);
      table->round_weights(rounded.data(), masters.data(), count);
      table->join_masters(back.data(), weights.data(), rest.data(), count);
      EXPECT_EQ(back, masters) << table->name;
      EXPECT_EQ(weights, rounded) << table->name;
      for (size_t i = 0; i < masters.size(); ++i)
        EXPECT_EQ(weights[i],
                  weight_of_master(std::bit_cast<uint32_t>(masters[i])));
    }
  }
}

}  // namespace
}  // namespace canzona::linalg::stages_stages_test

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/linalg/cpu/stages/table.h"
#include "canzona/linalg/cpu/test_support.h"
#include "canzona/linalg/test_squares.h"

namespace canzona::linalg::cpu_squares_test {
namespace {

using Limits = std::numeric_limits<float>;

Engine::Stretch stretch(const std::vector<float>& values) {
  return {run_of(values.data()), static_cast<int64_t>(values.size())};
}

WideSum squares(const std::vector<float>& values, int exponent) {
  const Engine::Stretch run = stretch(values);
  return make_cpu_engine()->sum_of_squares({&run, 1}, exponent);
}

uint32_t largest(const std::vector<float>& values) {
  const Engine::Stretch run = stretch(values);
  return make_cpu_engine()->largest_bits({&run, 1});
}

TEST(SumOfSquares, IsAnInteger) {
  EXPECT_EQ(squares({3, -4}, 0), (WideSum{25, 0}));
  EXPECT_EQ(squares({3, -4}, 2), (WideSum{400, 0}));
  EXPECT_EQ(squares({1.5, -1.5, 0.5}, 0), (WideSum{4, 0})) << "2 + 2 + 0";
  EXPECT_EQ(squares({1, 1, -1, -1}, 31), (WideSum{0, 1}));
  EXPECT_EQ(squares({}, 7), WideSum{});
}

TEST(SumOfSquares, IsThatOfTheDefinitionForNumbersOfEverySize) {
  for (const int exponent : {-97, -96, -20, 0, 31, 100, 157, 158, 180})
    for (const int64_t count : {1, 2, 16, 1000, 4096, 10001}) {
      const auto values = numbers_up_to(most_for(exponent), count, 7);
      EXPECT_EQ(squares(values, exponent), oracle_squares(values, exponent))
          << count << " numbers, exponent " << exponent;
    }
}

TEST(SumOfSquares, EveryInstructionSetGivesTheSameAtEveryOffset) {
  const auto values = numbers_up_to(1, 300, 3);
  for (const StageTable* table : usable_stages())
    for (int64_t offset = 0; offset < 64; ++offset)
      for (const int64_t count : {0, 1, 7, 8, 63, 200}) {
        const auto part = std::span(values).subspan(static_cast<size_t>(offset),
                                                    static_cast<size_t>(count));
        const SplitSum sum = table->sum_squares(part.data(), 0x1p31, count);
        const UInt128 whole = (UInt128{sum.high} << 32) + sum.low;
        const WideSum expected = oracle_squares(part, 31);
        EXPECT_TRUE(whole == (UInt128{expected.high} << 64) + expected.low)
            << table->name << " " << count << " from " << offset;
        EXPECT_EQ(table->largest_bits(part.data(), count), oracle_largest(part))
            << table->name << " " << count << " from " << offset;
      }
}

TEST(SumOfSquares, DoesNotDependOnCuts) {
  const auto engine = make_cpu_engine();
  const auto values = numbers_up_to(most_for(20), 100000, 5);
  const WideSum expected = oracle_squares(values, 20);
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const auto runs = cut_runs(values.data(), 100000, seed);
    EXPECT_EQ(engine->sum_of_squares(runs, 20), expected);
    EXPECT_EQ(engine->largest_bits(runs), oracle_largest(values));
  }
}

TEST(SumOfSquares, RefusesNumbersAboveItsRange) {
  EXPECT_THROW(squares({0, 1.0000001F}, 31), InternalError);
  EXPECT_THROW(squares({0, Limits::infinity()}, -200), InternalError);
  EXPECT_THROW(squares({0, Limits::quiet_NaN()}, -200), InternalError);
  std::vector<float> late(10000, 1);
  late.back() = -2;
  EXPECT_THROW(squares(late, 31), InternalError);
  const std::vector<double> wide = {1};
  const Engine::Stretch run{run_of(wide.data()), 1};
  EXPECT_THROW(make_cpu_engine()->sum_of_squares({&run, 1}, 0), InternalError);
  EXPECT_THROW(make_cpu_engine()->largest_bits({&run, 1}), InternalError);
}

// In pieces and at every offset; only the pieces are changed.
TEST(ScaleAndLook, IsOneAfterTheOther) {
  const auto values = numbers_up_to(1e30F, 5000, 11);
  for (const StageTable* table : usable_stages())
    for (const int64_t count : {0, 1, 7, 64, 4900})
      for (const float factor : {1.0F / 28, 3e9F, 1e-30F}) {
        auto fused = values, apart = values;
        const uint32_t found =
            table->scale_and_look(fused.data() + 13, factor, count);
        table->fp32.axpby(apart.data() + 13, factor, apart.data() + 13, 0,
                          count);
        EXPECT_EQ(found, table->largest_bits(apart.data() + 13, count));
        EXPECT_TRUE(std::ranges::equal(
            fused, apart, {}, [](float x) { return std::bit_cast<int>(x); },
            [](float x) { return std::bit_cast<int>(x); }))
            << table->name << " " << count << " times " << factor;
      }
}

// For an engine that does not override it.
TEST(ScaleAndLook, IsTheSameByTheWayThatAllEnginesHave) {
  const auto engine = make_cpu_engine();
  auto own = numbers_up_to(2, 1000, 3), common = own;
  const auto runs = [](std::vector<float>& x) {
    return std::vector<Engine::ScaledStretch>{{run_of(x.data()), 10},
                                              {run_of(x.data() + 10), 90},
                                              {run_of(x.data() + 200), 0},
                                              {run_of(x.data() + 300), 700}};
  };
  EXPECT_EQ(engine->scale_and_look(runs(own), 0.1),
            engine->Engine::scale_and_look(runs(common), 0.1));
  EXPECT_EQ(own, common);
  EXPECT_NE(own[0], 2);
  EXPECT_EQ(own[150], numbers_up_to(2, 1000, 3)[150]);
  EXPECT_EQ(engine->scale_and_look({}, 2), 0U);
}

TEST(LargestBits, PutsNansAboveInfinityAboveNumbers) {
  EXPECT_EQ(largest({}), 0U);
  EXPECT_EQ(make_cpu_engine()->largest_bits({}), 0U);
  EXPECT_EQ(largest({0, -0.0F}), 0U);
  EXPECT_EQ(largest({0, -Limits::denorm_min()}), 1U);
  EXPECT_EQ(largest({1, -2, 0.5}), 0x40000000U);
  EXPECT_EQ(largest({-Limits::max(), 1}), 0x7f7fffffU);
  EXPECT_EQ(largest({Limits::max(), -Limits::infinity()}), 0x7f800000U);
  const float signalling = std::bit_cast<float>(0xff800001U);
  EXPECT_EQ(largest({Limits::infinity(), signalling}), 0x7f800001U);
  EXPECT_EQ(largest({std::bit_cast<float>(0xffffffffU), signalling}),
            0x7fffffffU);
}

template <class Real>
class Scale : public testing::Test {};
TYPED_TEST_SUITE(Scale, RealTypes);

TYPED_TEST(Scale, RoundsTheFactorAndTheProductOnce) {
  using Real = TypeParam;
  const auto engine = make_cpu_engine();
  const double factor = 1.0 / 28;
  for (int64_t offset = 0; offset < 64; ++offset)
    for (const int64_t count : {0, 1, 15, 100}) {
      const auto small = numbers_up_to(1, offset + count, 1);
      std::vector<Real> values(small.begin(), small.end());
      std::vector<Real> expected = values;
      for (size_t i = static_cast<size_t>(offset); i < expected.size(); ++i)
        expected[i] = static_cast<Real>(factor) * expected[i];
      engine->scale(run_of(values.data() + offset), factor, count);
      EXPECT_TRUE(same_bits(values, expected)) << count << " from " << offset;
    }
}

TYPED_TEST(Scale, LeavesWhatIsNotFiniteSo) {
  using Other = std::numeric_limits<TypeParam>;
  std::vector<TypeParam> values = {Other::infinity(), -Other::max(), -0.0, 0,
                                   Other::quiet_NaN()};
  make_cpu_engine()->scale(run_of(values.data()), 4, 5);
  EXPECT_EQ(values[0], Other::infinity());
  EXPECT_EQ(values[1], -Other::infinity());
  EXPECT_TRUE(std::signbit(values[2]) && values[2] == 0);
  EXPECT_FALSE(std::signbit(values[3]));
  EXPECT_TRUE(std::isnan(values[4]));
}

}  // namespace
}  // namespace canzona::linalg::cpu_squares_test

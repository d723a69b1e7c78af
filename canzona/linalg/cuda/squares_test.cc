#include <gtest/gtest.h>

#include <limits>

#include "canzona/base/error.h"
#include "canzona/linalg/cuda/test_support.h"
#include "canzona/linalg/test_squares.h"

namespace canzona::linalg::cuda_squares_test {
namespace {

using Limits = std::numeric_limits<float>;

class CudaSquares : public GpuTest {
 protected:
  static Engine::Stretch part(const OnGpu<float>& values, int64_t begin,
                              int64_t count) {
    const float* data = values.data();
    return {run_of(data + begin), count};
  }
  WideSum squares(const std::vector<float>& values, int exponent) {
    const OnGpu<float> on_gpu(gpu(), values);
    const auto run = part(on_gpu, 0, on_gpu.size());
    return gpu().sum_of_squares({&run, 1}, exponent);
  }
  uint32_t largest(const std::vector<float>& values) {
    const OnGpu<float> on_gpu(gpu(), values);
    const auto run = part(on_gpu, 0, on_gpu.size());
    return gpu().largest_bits({&run, 1});
  }
};

TEST_F(CudaSquares, AreThoseOfTheDefinitionForNumbersOfEverySize) {
  for (const int exponent : {-97, -20, 0, 31, 100, 157, 158, 180})
    for (const int64_t count : {0, 1, 2, 1000, 8192, 8193, 3000001}) {
      const auto values = numbers_up_to(most_for(exponent), count, 7);
      EXPECT_EQ(squares(values, exponent), oracle_squares(values, exponent))
          << count << " numbers, exponent " << exponent;
      EXPECT_EQ(largest(values), oracle_largest(values));
    }
}

TEST_F(CudaSquares, AreTheSameAtEveryOffset) {
  const auto values = numbers_up_to(1, 20000, 3);
  const OnGpu<float> on_gpu(gpu(), values);
  for (int64_t offset = 0; offset < 64; ++offset)
    for (const int64_t count : {1, 7, 8192, 19000}) {
      const auto run = part(on_gpu, offset, count);
      const auto same = std::span(values).subspan(static_cast<size_t>(offset),
                                                  static_cast<size_t>(count));
      EXPECT_EQ(gpu().sum_of_squares({&run, 1}, 31), oracle_squares(same, 31));
      EXPECT_EQ(gpu().largest_bits({&run, 1}), oracle_largest(same));
    }
}

TEST_F(CudaSquares, DoNotDependOnCuts) {
  constexpr int64_t kCount = 300000;
  const auto values = numbers_up_to(most_for(20), kCount, 5);
  const OnGpu<float> on_gpu(gpu(), values);
  for (uint32_t seed = 0; seed < 5; ++seed) {
    const auto runs = cut_runs(on_gpu.data(), kCount, seed);
    EXPECT_EQ(gpu().sum_of_squares(runs, 20), oracle_squares(values, 20));
    EXPECT_EQ(gpu().largest_bits(runs), oracle_largest(values));
  }
}

// All numbers are as large as possible, so that the upper word is used.
TEST_F(CudaSquares, CarryFromTheLowerWordToTheUpper) {
  const std::vector<float> ones(1000003, -1);
  EXPECT_EQ(squares(ones, 31), oracle_squares(ones, 31));
}

TEST_F(CudaSquares, RefuseNumbersAboveTheirRange) {
  EXPECT_THROW(squares({0, 1.0000001F}, 31), InternalError);
  EXPECT_THROW(squares({0, Limits::infinity()}, -200), InternalError);
  EXPECT_THROW(squares({0, Limits::quiet_NaN()}, -200), InternalError);
  const OnGpu<double> wide(gpu(), std::vector<double>{1});
  const Engine::Stretch run{run_of(wide.data()), 1};
  EXPECT_THROW(gpu().largest_bits({&run, 1}), InternalError);
}

TEST_F(CudaSquares, TheLargestIsANanThenInfinity) {
  EXPECT_EQ(gpu().largest_bits({}), 0U);
  EXPECT_EQ(gpu().sum_of_squares({}, 3), WideSum{});
  EXPECT_EQ(largest({0, -0.0F}), 0U);
  EXPECT_EQ(largest({0, -Limits::denorm_min()}), 1U);
  EXPECT_EQ(largest({Limits::max(), -Limits::infinity()}), 0x7f800000U);
  const float signalling = std::bit_cast<float>(0xff800001U);
  EXPECT_EQ(largest({Limits::infinity(), signalling}), 0x7f800001U);
}

// Work that asks for results cannot be captured, but it can be repeated.
TEST_F(CudaSquares, MayBeRepeated) {
  const auto values = numbers_up_to(1, 1000, 2);
  const OnGpu<float> on_gpu(gpu(), values);
  const auto run = part(on_gpu, 0, 1000);
  WideSum found;
  for (int round = 0; round < 3; ++round) {
    found = {};
    gpu().repeat([&] { found = gpu().sum_of_squares({&run, 1}, 31); });
    EXPECT_EQ(found, oracle_squares(values, 31));
  }
}

template <class Real>
class CudaScale : public GpuTest {};
TYPED_TEST_SUITE(CudaScale, RealTypes);

TYPED_TEST(CudaScale, HasTheBitsOfTheCpuAtEveryOffset) {
  using Real = TypeParam;
  for (int64_t offset = 0; offset < 64; ++offset)
    for (const int64_t count : {0, 1, 15, 1000}) {
      const auto small = numbers_up_to(1, offset + count, 1);
      std::vector<Real> values(small.begin(), small.end());
      const OnGpu<Real> on_gpu(this->gpu(), values);
      this->gpu().scale(run_of(on_gpu.data() + offset), 1.0 / 28, count);
      this->cpu().scale(run_of(values.data() + offset), 1.0 / 28, count);
      EXPECT_TRUE(same_bits(on_gpu.get(), values))
          << count << " from " << offset;
    }
}

}  // namespace
}  // namespace canzona::linalg::cuda_squares_test

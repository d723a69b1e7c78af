#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "canzona/linalg/cuda/test_support.h"

namespace canzona::linalg::cuda_reductions_test {
namespace {

template <class Real>
class CudaReductions : public GpuTest {
 protected:
  static constexpr double kNear = 1e-13;  // sums are in fp64
  using Reduction = void (Engine::*)(ConstMatrices, std::span<double>);

  std::vector<double> results(Engine& engine, Reduction reduction,
                              ConstMatrices a) {
    std::vector<double> found(static_cast<size_t>(a.count), -7);
    (engine.*reduction)(a, found);
    return found;
  }

  void expect_near(Reduction reduction, const Batch<Real>& batch) {
    GpuBatch<Real> on_gpu(this->gpu(), batch);
    const auto expected = results(this->cpu(), reduction, batch);
    const auto found = results(this->gpu(), reduction, on_gpu);
    for (size_t i = 0; i < expected.size(); ++i)
      if (std::isnan(expected[i]))
        EXPECT_TRUE(std::isnan(found[i])) << found[i];
      else if (std::isinf(expected[i]))
        EXPECT_EQ(found[i], expected[i]);
      else
        EXPECT_NEAR(found[i], expected[i],
                    kNear * (std::fabs(expected[i]) +
                             (reduction == &Engine::traces ? 30 : 0)))
            << batch.rows() << "x" << batch.cols() << " matrix " << i;
  }

  static constexpr int64_t kShapes[][3] = {{0, 5, 2},     {1, 1, 1},
                                           {17, 33, 3},   {128, 128, 2},
                                           {129, 255, 2}, {300, 400, 2}};
};
TYPED_TEST_SUITE(CudaReductions, RealTypes);

TYPED_TEST(CudaReductions, AreThoseOfTheCpu) {
  for (const auto& [rows, cols, count] : this->kShapes)
    for (int64_t gap : {0, 1, 4}) {
      Batch<TypeParam> batch(rows, cols, count, gap);
      batch.randomise(3);
      this->expect_near(&Engine::norms, batch);
      this->expect_near(&Engine::max_abs, batch);
      this->expect_near(&Engine::traces, batch);
    }
}

TYPED_TEST(CudaReductions, WorkAtTheEndsOfTheRange) {
  using Limits = std::numeric_limits<TypeParam>;
  for (TypeParam scale :
       {Limits::max() / 256, Limits::min(), Limits::denorm_min() * 1000}) {
    Batch<TypeParam> batch(20, 30, 2, 1);
    batch.randomise(1).fill(
        [&](TypeParam& x, int64_t, int64_t, int64_t) { x *= scale; });
    this->expect_near(&Engine::norms, batch);
    this->expect_near(&Engine::max_abs, batch);
  }
}

TYPED_TEST(CudaReductions, DoNotHideWhatIsNotFinite) {
  for (double bad : {std::numeric_limits<double>::infinity(),
                     std::numeric_limits<double>::quiet_NaN()}) {
    Batch<TypeParam> batch(20, 30, 3);
    batch.randomise(1);
    batch.at(1, 19, 29) = static_cast<TypeParam>(bad);
    batch.at(1, 5, 5) = static_cast<TypeParam>(bad);
    this->expect_near(&Engine::norms, batch);
    this->expect_near(&Engine::max_abs, batch);
    this->expect_near(&Engine::traces, batch);
    GpuBatch<TypeParam> on_gpu(this->gpu(), batch);
    bool finite[3] = {};
    this->gpu().finite(on_gpu, finite);
    EXPECT_TRUE(finite[0]);
    EXPECT_FALSE(finite[1]);
    EXPECT_TRUE(finite[2]);
  }
}

TYPED_TEST(CudaReductions, BitsDependNeitherOnTheBatchNorOnStrides) {
  Batch<TypeParam> batch(130, 131, 4);
  batch.randomise(9);
  GpuBatch<TypeParam> together(this->gpu(), batch);
  const auto all = this->results(this->gpu(), &Engine::norms, together);
  for (int64_t which = 0; which < 4; ++which)
    for (int64_t gap : {0, 1, 3}) {
      GpuBatch<TypeParam> one(this->gpu(), alone(batch, which, gap));
      EXPECT_EQ(this->results(this->gpu(), &Engine::norms, one)[0],
                all[static_cast<size_t>(which)])
          << which << " gap " << gap;
    }
}

TYPED_TEST(CudaReductions, ColumnDotsAreThoseOfTheCpu) {
  for (const auto& [rows, cols, count] : this->kShapes)
    for (int64_t scale : {1, 5}) {
      Batches<TypeParam> batches;
      batches.emplace_back(1, cols, count, 1);
      batches.emplace_back(rows * scale, cols, count, 1);
      batches.emplace_back(rows * scale, cols, count, 2);
      batches[1].randomise(1);
      batches[2].randomise(2);
      const auto work = [](Engine& e, std::span<const Matrices> v) {
        e.column_dots(v[0], v[1], v[2]);
      };
      const auto expected = on_cpu(this->cpu(), batches, work);
      const auto found = on_gpu(this->gpu(), batches, work);
      for (int64_t k = 0; k < count; ++k)
        EXPECT_LE(distance(plain(found[0], k), plain(expected[0], k)),
                  tolerance<TypeParam>() * static_cast<double>(rows + 1));
      EXPECT_TRUE(found[0].marks_untouched());
    }
}

TYPED_TEST(CudaReductions, FindTheFirstRunThatIsNotFinite) {
  using Real = TypeParam;
  const OnGpu<int32_t> first(this->gpu(), std::vector<int32_t>{-1});
  const std::vector<int64_t> sizes = {5, 0, 8192, 100003, 1, 0};
  std::vector<std::unique_ptr<OnGpu<Real>>> runs;
  std::vector<Engine::Stretch> stretches;
  for (size_t i = 0; i < sizes.size(); ++i) {
    runs.push_back(std::make_unique<OnGpu<Real>>(
        this->gpu(), numbers<Real>(sizes[i], 1), static_cast<int64_t>(i % 2)));
    stretches.push_back(
        {run_of(static_cast<const Real*>(runs[i]->data())), sizes[i]});
  }
  const auto found = [&] {
    this->gpu().find_nonfinite(first.data(), stretches);
    return first.get()[0];
  };
  EXPECT_EQ(found(), 0);
  const auto spoil = [&](size_t run, int64_t place, double value) {
    auto values = runs[run]->get();
    values[static_cast<size_t>(place)] = static_cast<Real>(value);
    runs[run]->set(values);
  };
  spoil(4, 0, std::numeric_limits<double>::infinity());
  EXPECT_EQ(found(), 5);
  spoil(3, 100002, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(found(), 4);
  spoil(2, 8191, -std::numeric_limits<double>::infinity());
  EXPECT_EQ(found(), 3);
  spoil(0, 4, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(found(), 1);
  EXPECT_FALSE(this->gpu().all_finite(stretches[0].run, 5));
  EXPECT_TRUE(this->gpu().all_finite(stretches[0].run, 4));
  EXPECT_TRUE(this->gpu().all_finite(stretches[1].run, 0));
  this->gpu().find_nonfinite(first.data(), {});
  EXPECT_EQ(first.get()[0], 0);
}

TYPED_TEST(CudaReductions, TheLargestAndTheSmallestNumbersAreFinite) {
  using Limits = std::numeric_limits<TypeParam>;
  const OnGpu<TypeParam> edges(
      this->gpu(), std::vector<TypeParam>{Limits::max(), Limits::denorm_min(),
                                          Limits::lowest(), 0});
  EXPECT_TRUE(this->gpu().all_finite(run_of(edges.data()), 4));
}

}  // namespace
}  // namespace canzona::linalg::cuda_reductions_test

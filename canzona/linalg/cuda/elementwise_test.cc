#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "canzona/linalg/cuda/test_support.h"

namespace canzona::linalg::cuda_elementwise_test {
namespace {

template <class Real>
class CudaElementwise : public GpuTest {
 protected:
  // Expects the same bits as the CPU's, for views with and without gaps.
  void expect_same_bits(const std::string& name, const BatchWork& work) {
    constexpr int64_t kShapes[][3] = {
        {0, 3, 2}, {1, 1, 1}, {7, 19, 2}, {3, 64, 5}, {33, 128, 1}};
    for (const auto& [rows, cols, count] : kShapes)
      for (int64_t gap : {0, 1, 4}) {
        Batches<Real> batches(3, Batch<Real>(rows, cols, count, gap));
        for (size_t i = 0; i < batches.size(); ++i)
          batches[i].randomise(static_cast<uint32_t>(i + 1));
        const auto expected = on_cpu(this->cpu(), batches, work);
        const auto found = on_gpu(this->gpu(), batches, work);
        for (size_t i = 0; i < batches.size(); ++i)
          EXPECT_TRUE(same_bits(found[i].storage(), expected[i].storage()))
              << name << " " << rows << "x" << cols << "x" << count << " gap "
              << gap << " batch " << i;
      }
  }

  static std::vector<double> different(const Matrices& m) {
    std::vector<double> values;
    for (int64_t i = 0; i < m.count; ++i)
      values.push_back(0.1 + static_cast<double>(i));
    return values;
  }
};
TYPED_TEST_SUITE(CudaElementwise, RealTypes);

TYPED_TEST(CudaElementwise, GivesTheBitsOfTheCpu) {
  using Views = std::span<const Matrices>;
  this->expect_same_bits("copy",
                         [](Engine& e, Views v) { e.copy(v[0], v[1]); });
  this->expect_same_bits("set_identity", [&](Engine& e, Views v) {
    e.set_identity(v[0], this->different(v[0]));
  });
  this->expect_same_bits("add_diagonal", [&](Engine& e, Views v) {
    e.add_diagonal(v[0], this->different(v[0]));
  });
  this->expect_same_bits("axpby", [&](Engine& e, Views v) {
    e.axpby(v[0], this->different(v[0]), v[1], 0.7);
  });
  this->expect_same_bits("axpby without beta", [&](Engine& e, Views v) {
    e.axpby(v[0], 0.3, v[1], 0);
  });
  this->expect_same_bits("scale_columns", [](Engine& e, Views v) {
    ConstMatrices factors = v[2];
    factors.rows = std::min<int64_t>(factors.rows, 1);
    if (factors.rows == 1) e.scale_columns(v[0], v[1], factors);
  });
}

TYPED_TEST(CudaElementwise, AxpbyWithoutBetaIgnoresWhatWasThere) {
  Batches<TypeParam> batches(2, Batch<TypeParam>(3, 5));
  batches[0].at(0, 1, 1) = std::numeric_limits<TypeParam>::quiet_NaN();
  batches[1].randomise(1);
  const auto found =
      on_gpu(this->gpu(), batches, [](Engine& e, std::span<const Matrices> v) {
        e.axpby(v[0], 2, v[1], 0);
      });
  EXPECT_EQ(found[0].at(0, 1, 1), 2 * batches[1].at(0, 1, 1));
}

TYPED_TEST(CudaElementwise, ConvertsBothWays) {
  Batch<double> wide(5, 37, 3, 1);
  wide.randomise(3);
  Batch<float> narrow(5, 37, 3, 2);
  GpuBatch<double> wide_on_gpu(this->gpu(), wide);
  GpuBatch<float> narrow_on_gpu(this->gpu(), narrow);
  this->cpu().convert(narrow, wide);
  this->gpu().convert(narrow_on_gpu, wide_on_gpu);
  EXPECT_TRUE(same_bits(narrow_on_gpu.get().storage(), narrow.storage()));
  this->cpu().convert(wide, narrow);
  this->gpu().convert(wide_on_gpu, narrow_on_gpu);
  EXPECT_TRUE(same_bits(wide_on_gpu.get().storage(), wide.storage()));
}

TYPED_TEST(CudaElementwise, PermutesByOrdersInItsMemory) {
  constexpr int64_t kRows = 6;
  constexpr int64_t kCols = 35;
  std::vector<int64_t> columns, rows;
  for (int64_t which : {0, 1})
    for (int64_t j = 0; j < kCols; ++j)
      columns.push_back((j * (which == 0 ? 2 : 3) + which) % kCols);
  for (int64_t i = 0; i < kRows; ++i) rows.push_back(kRows - 1 - i);
  const OnGpu<int64_t> columns_on_gpu(this->gpu(), columns);
  const OnGpu<int64_t> rows_on_gpu(this->gpu(), rows);
  for (int64_t gap : {0, 3}) {
    Batches<TypeParam> batches(3, Batch<TypeParam>(kRows, kCols, 4, gap));
    batches[0].randomise(1);
    const auto work = [&](int64_t* by_column, int64_t* by_row) {
      return [=](Engine& e, std::span<const Matrices> v) {
        e.permute_columns(v[1], v[0], Orders{by_column, kCols, 2});
        e.permute_rows(v[2], v[0], Orders{by_row, kRows, 1});
      };
    };
    const auto expected =
        on_cpu(this->cpu(), batches, work(columns.data(), rows.data()));
    const auto found = on_gpu(this->gpu(), batches,
                              work(columns_on_gpu.data(), rows_on_gpu.data()));
    EXPECT_TRUE(same_bits(found[1].storage(), expected[1].storage()));
    EXPECT_TRUE(same_bits(found[2].storage(), expected[2].storage()));
  }
}

TYPED_TEST(CudaElementwise, SortsLikeTheCpu) {
  for (int64_t n : {0, 1, 2, 31, 256, 257, 3000})
    for (bool falling : {false, true}) {
      constexpr int64_t kCount = 3;
      Batch<TypeParam> values(1, n, kCount);
      values.randomise(5);
      // There are many equal values, and both zeros.
      values.fill([](TypeParam& x, int64_t, int64_t, int64_t j) {
        x = std::round(x * 20) / 4;
        if (j % 5 == 0) x = j % 2 == 0 ? TypeParam{0} : -TypeParam{0};
      });
      std::vector<int64_t> expected(static_cast<size_t>(n * kCount));
      const OnGpu<int64_t> orders(this->gpu(), expected);
      this->cpu().sort({expected.data(), n, kCount}, values, falling);
      GpuBatch<TypeParam> on_gpu(this->gpu(), values);
      this->gpu().sort({orders.data(), n, kCount}, on_gpu, falling);
      EXPECT_EQ(orders.get(), expected) << n << " falling " << falling;
    }
}

TYPED_TEST(CudaElementwise, RaisesValues) {
  for (bool shift : {false, true})
    for (double first : {-0.5, 0.0, 1e-12, 0.25}) {
      Batches<TypeParam> batches(1, Batch<TypeParam>(1, 700, 2));
      batches[0].fill([&](TypeParam& x, int64_t, int64_t, int64_t j) {
        x = static_cast<TypeParam>(first + static_cast<double>(j) * 0.01);
      });
      const auto work = [&](Engine& e, std::span<const Matrices> v) {
        e.raise_values(v[0], std::vector<double>{1e-8, 0.1}, shift, -0.25);
      };
      const auto expected = on_cpu(this->cpu(), batches, work);
      const auto found = on_gpu(this->gpu(), batches, work);
      for (int64_t k = 0; k < 2; ++k)
        for (int64_t j = 0; j < 700; ++j) {
          const double right = expected[0].at(k, 0, j);
          EXPECT_NEAR(found[0].at(k, 0, j), right,
                      2 * std::numeric_limits<TypeParam>::epsilon() * right);
        }
    }
}

// Also compares what lies behind triangles and around squares.
TYPED_TEST(CudaElementwise, TrianglesHaveTheBitsOfTheCpu) {
  for (const int64_t side : {0, 1, 7, 64, 65})
    for (const int64_t gap : {0, 3}) {
      Batches<TypeParam> batches(2, Batch<TypeParam>(side, side, 1, gap));
      batches[0].randomise(1).fill(
          [](TypeParam& x, int64_t, int64_t i, int64_t j) {
            if (i < j) x = std::numeric_limits<TypeParam>::quiet_NaN();
          });
      batches[1].randomise(2);
      batches.emplace_back(1, side * (side + 1) / 2 + 1);
      const auto work = [](Engine& e, std::span<const Matrices> v) {
        const Run triangle{v[2].data, v[2].dtype};
        e.take_triangle(triangle, v[0]);
        e.put_triangle(v[1], {triangle.data, triangle.dtype});
      };
      const auto expected = on_cpu(this->cpu(), batches, work);
      const auto found = on_gpu(this->gpu(), batches, work);
      for (size_t i = 0; i < batches.size(); ++i)
        EXPECT_TRUE(same_bits(found[i].storage(), expected[i].storage()))
            << side << " gap " << gap << " batch " << i;
    }
}

TYPED_TEST(CudaElementwise, InverseRootsAreThoseOfTheCpu) {
  Batches<TypeParam> batches(2, Batch<TypeParam>(1, 1001, 2));
  batches[1].randomise(2);
  const auto work = [](Engine& e, std::span<const Matrices> v) {
    e.inverse_roots(v[0], v[1], 1.7, 1e-3);
  };
  EXPECT_TRUE(same_bits(on_gpu(this->gpu(), batches, work)[0].storage(),
                        on_cpu(this->cpu(), batches, work)[0].storage()));
}

TYPED_TEST(CudaElementwise, ScalesToTheNormOfTheReference) {
  Batches<TypeParam> batches(2, Batch<TypeParam>(70, 300, 3, 1));
  batches[0].randomise(1).fill([](TypeParam& x, int64_t k, int64_t, int64_t) {
    x = k == 1 ? TypeParam{0} : x * static_cast<TypeParam>(1e-30);
  });
  batches[1].randomise(2);
  const auto found =
      on_gpu(this->gpu(), batches, [](Engine& e, std::span<const Matrices> v) {
        e.scale_to_norm(v[0], v[1], 0);
      });
  for (int64_t k : {0, 2})
    EXPECT_NEAR(norm(plain(found[0], k)) / norm(plain(batches[1], k)), 1,
                tolerance<TypeParam>());
  EXPECT_EQ(norm(plain(found[0], 1)), 0);
  EXPECT_TRUE(found[0].marks_untouched());
}

TYPED_TEST(CudaElementwise, LimitsNormsThatAreAboveTheBoundAlone) {
  Batches<TypeParam> batches(1, Batch<TypeParam>(70, 300, 3, 1));
  batches[0].randomise(1).fill([](TypeParam& x, int64_t k, int64_t, int64_t) {
    x = k == 1 ? x * static_cast<TypeParam>(1e-3) : x;
  });
  const double bound = norm(plain(batches[0], 0)) / 2;
  const auto found =
      on_gpu(this->gpu(), batches, [&](Engine& e, std::span<const Matrices> v) {
        e.limit_norms(v[0], bound, 0);
      });
  for (int64_t k : {0, 2})
    EXPECT_NEAR(norm(plain(found[0], k)) / bound, 1, tolerance<TypeParam>());
  EXPECT_EQ(norm(plain(found[0], 1)), norm(plain(batches[0], 1)));
  EXPECT_TRUE(found[0].marks_untouched());
}

}  // namespace
}  // namespace canzona::linalg::cuda_elementwise_test

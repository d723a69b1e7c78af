#include <gtest/gtest.h>

#include <bit>

#include "canzona/base/error.h"
#include "canzona/linalg/cuda/test_support.h"
#include "canzona/linalg/engine.h"

namespace canzona::linalg::cuda_dense_test {
namespace {

template <class Real>
class CudaDense : public GpuTest {
 protected:
  static Plain op(const Plain& a, Op which) {
    return which == Op::kNone ? a : transposed(a);
  }

  // alpha·op(A)·op(B) + beta·C of matrix k.
  static Plain expected(const Batches<Real>& b, int64_t k, Op op_a, Op op_b,
                        double alpha, double beta) {
    return sum(alpha, times(op(plain(b[1], k), op_a), op(plain(b[2], k), op_b)),
               beta, plain(b[0], k));
  }
};
TYPED_TEST_SUITE(CudaDense, RealTypes);

constexpr int64_t kProducts[][3] = {{1, 1, 1},    {1, 7, 5},    {33, 1, 64},
                                    {17, 31, 29}, {64, 64, 64}, {130, 75, 200},
                                    {256, 96, 48}};

TYPED_TEST(CudaDense, ProductsAreRightForAllShapesAndStrides) {
  for (const auto& [m, n, k] : kProducts)
    for (Op op_a : {Op::kNone, Op::kTranspose})
      for (Op op_b : {Op::kNone, Op::kTranspose})
        for (int64_t gap : {0, 1, 4}) {
          constexpr int64_t kCount = 3;
          const bool ta = op_a == Op::kTranspose, tb = op_b == Op::kTranspose;
          Batches<TypeParam> batches;
          batches.emplace_back(m, n, kCount, gap);
          batches.emplace_back(ta ? k : m, ta ? m : k, kCount, gap);
          batches.emplace_back(tb ? n : k, tb ? k : n, kCount, gap);
          for (uint32_t i = 0; i < 3; ++i) batches[i].randomise(i + 1);
          const auto found =
              on_gpu(this->gpu(), batches,
                     [&](Engine& e, std::span<const Matrices> v) {
                       e.product(v[0], 0.7, v[1], op_a, v[2], op_b, -0.3);
                     });
          for (int64_t i = 0; i < kCount; ++i)
            EXPECT_LE(
                distance(plain(found[0], i),
                         this->expected(batches, i, op_a, op_b, 0.7, -0.3)),
                tolerance<TypeParam>() * static_cast<double>(k + 1) *
                    std::sqrt(static_cast<double>(m * n)))
                << m << "x" << k << "x" << n << " gap " << gap;
          EXPECT_TRUE(found[0].marks_untouched());
        }
}

TYPED_TEST(CudaDense, WithoutBetaWhatWasThereIsIgnored) {
  for (int64_t inner : {0, 9}) {
    Batches<TypeParam> batches;
    batches.emplace_back(5, 8);
    batches.emplace_back(5, inner);
    batches.emplace_back(inner, 8);
    batches[0].fill([](TypeParam& x, int64_t, int64_t, int64_t) {
      x = std::numeric_limits<TypeParam>::quiet_NaN();
    });
    batches[1].randomise(1);
    batches[2].randomise(2);
    const auto found = on_gpu(
        this->gpu(), batches, [](Engine& e, std::span<const Matrices> v) {
          e.product(v[0], 1, v[1], Op::kNone, v[2], Op::kNone, 0);
        });
    EXPECT_LE(
        distance(plain(found[0]), times(plain(batches[1]), plain(batches[2]))),
        100 * tolerance<TypeParam>())
        << inner;
  }
}

TYPED_TEST(CudaDense, SymmetricProductsAreSymmetricAndRight) {
  for (int64_t side : {1, 7, 64, 130, 1040, 1101})
    for (Op op_a : {Op::kNone, Op::kTranspose}) {
      const int64_t inner = side > 1000 ? 20 : 37;
      Batches<TypeParam> batches;
      batches.emplace_back(side, side, 2, 1);
      batches.emplace_back(op_a == Op::kNone ? side : inner,
                           op_a == Op::kNone ? inner : side, 2, 1);
      batches[0].randomise(1).symmetrise();
      batches[1].randomise(2);
      const auto work = [&](Engine& e, std::span<const Matrices> v) {
        e.symmetric_product(v[0], 0.5, v[1], op_a, 0.25);
      };
      const auto found = on_gpu(this->gpu(), batches, work);
      const auto right = on_cpu(this->cpu(), batches, work);
      for (int64_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(exactly_symmetric(plain(found[0], i))) << side;
        EXPECT_LE(distance(plain(found[0], i), plain(right[0], i)),
                  tolerance<TypeParam>() * static_cast<double>(side * inner))
            << side;
      }
      EXPECT_TRUE(found[0].marks_untouched());
    }
}

TYPED_TEST(CudaDense, CommutingProductsAreSymmetricAndRight) {
  for (int64_t side : {1, 33, 128, 1100}) {
    Batches<TypeParam> batches(3, Batch<TypeParam>(side, side, 2));
    batches[1].randomise(1).symmetrise();
    batches[2] = batches[1];  // a matrix commutes with itself
    const auto work = [](Engine& e, std::span<const Matrices> v) {
      e.commuting_product(v[0], v[1], v[2]);
    };
    const auto found = on_gpu(this->gpu(), batches, work);
    const auto right = on_cpu(this->cpu(), batches, work);
    for (int64_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(exactly_symmetric(plain(found[0], i))) << side;
      EXPECT_LE(distance(plain(found[0], i), plain(right[0], i)),
                tolerance<TypeParam>() * static_cast<double>(side * side));
    }
  }
}

// Strides and offsets give the same matrix other alignments.
TYPED_TEST(CudaDense, BitsDependOnTheShapeAlone) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{33, 65, 129},
                                std::array<int64_t, 3>{64, 128, 256}}) {
    constexpr int64_t kCount = 5;
    Batches<TypeParam> batches;
    batches.emplace_back(m, n, kCount);
    batches.emplace_back(m, k, kCount);
    batches.emplace_back(k, n, kCount);
    for (uint32_t i = 0; i < 3; ++i) batches[i].randomise(i + 1);
    const auto work = [](Engine& e, std::span<const Matrices> v) {
      e.product(v[0], 1.5, v[1], Op::kNone, v[2], Op::kNone, 0.5);
    };
    const auto together = on_gpu(this->gpu(), batches, work);
    for (int64_t which = 0; which < kCount; ++which)
      for (int64_t gap : {0, 1, 4}) {
        Batches<TypeParam> single;
        for (const auto& batch : batches)
          single.push_back(alone(batch, which, gap));
        const auto found = on_gpu(this->gpu(), single, work);
        EXPECT_EQ(plain(found[0]).values, plain(together[0], which).values)
            << m << " matrix " << which << " gap " << gap;
      }
  }
}

TYPED_TEST(CudaDense, SolvesWithTheTransposedFactor) {
  for (const auto& [rows, side] :
       {std::array<int64_t, 2>{1, 1}, std::array<int64_t, 2>{20, 33},
        std::array<int64_t, 2>{64, 128}, std::array<int64_t, 2>{30, 600}}) {
    Batches<TypeParam> batches;
    batches.emplace_back(rows, side, 3, 1);
    batches.emplace_back(side, side, 3, 1);
    batches[0].randomise(1);
    batches[1].randomise(2).fill(
        [&](TypeParam& x, int64_t, int64_t i, int64_t j) {
          x = i == j ? 2 : i > j ? x / static_cast<TypeParam>(side) : 0;
        });
    const auto found = on_gpu(this->gpu(), batches,
                              [](Engine& e, std::span<const Matrices> v) {
                                e.solve_right_transposed(v[0], v[1]);
                              });
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_LE(
          distance(times(plain(found[0], i), transposed(plain(batches[1], i))),
                   plain(batches[0], i)),
          tolerance<TypeParam>() * static_cast<double>(rows * side));
    EXPECT_TRUE(found[0].marks_untouched());
  }
}

TYPED_TEST(CudaDense, RefusesShapesThatDoNotFit) {
  Batches<TypeParam> batches;
  batches.emplace_back(3, 4);
  batches.emplace_back(3, 5);
  batches.emplace_back(6, 4);
  EXPECT_THROW(on_gpu(this->gpu(), batches,
                      [](Engine& e, std::span<const Matrices> v) {
                        e.product(v[0], 1, v[1], Op::kNone, v[2], Op::kNone, 0);
                      }),
               InternalError);
}

class CudaParts : public GpuTest {
 protected:
  static Batches<double> in_fp64(const Batches<float>& batches) {
    Batches<double> result;
    for (const Batch<float>& b : batches) {
      result.emplace_back(b.rows(), b.cols(), b.count());
      result.back().fill([&](double& x, int64_t k, int64_t i, int64_t j) {
        x = static_cast<double>(b.at(k, i, j));
      });
    }
    return result;
  }
};

// Three products of 8-bit halves leave an error of some 2⁻¹⁶ of the terms;
// tensor cores alone, without the low halves, would leave 2⁻⁸.
TEST_F(CudaParts, LargeProductsKeepSixteenBits) {
  constexpr int64_t kSide = 320;
  for (Op op_a : {Op::kNone, Op::kTranspose})
    for (Op op_b : {Op::kNone, Op::kTranspose}) {
      Batches<float> batches(3, Batch<float>(kSide, kSide, 2, 1));
      for (uint32_t i = 0; i < 3; ++i) batches[i].randomise(i + 1);
      const auto work = [&](Engine& e, std::span<const Matrices> v) {
        e.product(v[0], 1, v[1], op_a, v[2], op_b, 1);
      };
      gpu().set_products(Products::kBf16x3);
      const auto rough = on_gpu(gpu(), batches, work);
      gpu().set_products(Products::kPlain);
      const auto fine = on_gpu(gpu(), batches, work);
      for (int64_t i = 0; i < 2; ++i) {
        const double error = distance(plain(rough[0], i), plain(fine[0], i));
        EXPECT_LE(error, 4e-5 * norm(plain(fine[0], i)));
        EXPECT_GT(error, 0) << "was it computed in another way?";
      }
      EXPECT_TRUE(rough[0].marks_untouched());
    }
}

// Six products of three parts are as good as fp32, up to sums that are
// truncated, not rounded.
TEST_F(CudaParts, SixProductsAreAsExactAsFp32) {
  for (int64_t inner : {600, 6144}) {
    Batches<float> batches;
    batches.emplace_back(520, 512, 2);
    batches.emplace_back(520, inner, 2, 4);
    batches.emplace_back(inner, 512, 2);
    for (uint32_t i = 0; i < 3; ++i) batches[i].randomise(i + 1);
    const auto work = [](Engine& e, std::span<const Matrices> v) {
      e.product(v[0], 1, v[1], Op::kNone, v[2], Op::kNone, 0);
    };
    const auto fine = on_gpu(gpu(), batches, work);
    gpu().set_products(Products::kBf16x6);
    const auto split = on_gpu(gpu(), batches, work);
    gpu().set_products(Products::kPlain);
    const auto exact = on_gpu(gpu(), in_fp64(batches), work);
    for (int64_t i = 0; i < 2; ++i) {
      const Plain right = plain(exact[0], i);
      const double of_fp32 = distance(plain(fine[0], i), right);
      const double of_split = distance(plain(split[0], i), right);
      EXPECT_LE(of_split, 2e-5 * norm(right)) << inner;
      EXPECT_NE(of_split, of_fp32) << "was it computed in another way?";
    }
  }
}

TEST_F(CudaParts, SymmetricProductsStaySymmetric) {
  Batches<float> batches(3, Batch<float>(1200, 1200));
  batches[1].randomise(1).symmetrise();
  gpu().set_products(Products::kBf16x3);
  const auto found =
      on_gpu(gpu(), batches, [](Engine& e, std::span<const Matrices> v) {
        e.symmetric_product(v[0], 1, v[1], Op::kNone, 0);
        e.commuting_product(v[2], v[1], v[1]);
      });
  EXPECT_TRUE(exactly_symmetric(plain(found[0])));
  EXPECT_TRUE(exactly_symmetric(plain(found[2])));
  EXPECT_LE(distance(plain(found[0]), plain(found[2])),
            1e-4 * norm(plain(found[0])));
}

class CudaBf16Products : public GpuTest {};

// Small integers, all of whose sums are exact. Their bf16 is the upper half of
// their fp32.
int small_number(int64_t i, int64_t seed) {
  return static_cast<int>((i * 7 + seed * 13) % 5) - 2;
}

Matrices bf16_matrix(Engine& engine, EngineMemory& memory, int64_t rows,
                     int64_t cols, int64_t seed) {
  std::vector<uint16_t> values;
  for (int64_t i = 0; i < rows * cols; ++i)
    values.push_back(static_cast<uint16_t>(
        std::bit_cast<uint32_t>(static_cast<float>(small_number(i, seed))) >>
        16));
  const Run run = memory.take(rows * cols, DType::kBf16);
  engine.upload(run.data, reinterpret_cast<const std::byte*>(values.data()),
                rows * cols * 2);
  return {run.data, DType::kBf16, rows, cols, cols, 1, rows * cols, nullptr};
}

TEST_F(CudaBf16Products, AreThoseOfForwardAndBackward) {
  constexpr int64_t kTokens = 64, kIn = 48, kOut = 24;
  EngineMemory memory(gpu());
  const auto number = [](int64_t row, int64_t col, int64_t cols, int64_t seed) {
    return small_number(row * cols + col, seed);
  };
  const Matrices x = bf16_matrix(gpu(), memory, kTokens, kIn, 1),
                 w = bf16_matrix(gpu(), memory, kOut, kIn, 2),
                 dy = bf16_matrix(gpu(), memory, kTokens, kOut, 3);
  const auto expect = [&](int64_t rows, int64_t cols, int64_t inner, auto run,
                          auto left, auto right) {
    const auto c = memory.take(rows * cols);
    run(matrices(reinterpret_cast<float*>(c.data), rows, cols));
    const auto found = memory.get<float>(c.data, rows * cols);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) {
        int sum = 0;
        for (int64_t k = 0; k < inner; ++k) sum += left(i, k) * right(k, j);
        ASSERT_EQ(found[static_cast<size_t>(i * cols + j)],
                  static_cast<float>(sum))
            << i << ", " << j;
      }
  };
  expect(
      kTokens, kOut, kIn,
      [&](Matrices c) {
        gpu().bf16_product(c, x, Op::kNone, w, Op::kTranspose);
      },
      [&](int64_t i, int64_t k) { return number(i, k, kIn, 1); },
      [&](int64_t k, int64_t j) { return number(j, k, kIn, 2); });
  expect(
      kTokens, kIn, kOut,
      [&](Matrices c) { gpu().bf16_product(c, dy, Op::kNone, w, Op::kNone); },
      [&](int64_t i, int64_t k) { return number(i, k, kOut, 3); },
      [&](int64_t k, int64_t j) { return number(k, j, kIn, 2); });
  expect(
      kOut, kIn, kTokens,
      [&](Matrices c) {
        gpu().bf16_product(c, dy, Op::kTranspose, x, Op::kNone);
      },
      [&](int64_t i, int64_t k) { return number(k, i, kOut, 3); },
      [&](int64_t k, int64_t j) { return number(k, j, kIn, 1); });
}

}  // namespace
}  // namespace canzona::linalg::cuda_dense_test

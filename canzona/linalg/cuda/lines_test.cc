// Norms and factors of lines: those of the CPU, but for the order of sums.
#include "canzona/linalg/lines.h"

#include <gtest/gtest.h>

#include "canzona/linalg/cuda/test_support.h"

namespace canzona::linalg::cuda_lines_test {
namespace {

using Kind = LineFactors::Kind;

template <class Real>
class CudaLines : public GpuTest {
 protected:
  static constexpr int64_t kShapes[][3] = {
      {0, 5, 2}, {1, 1, 1}, {17, 33, 3}, {129, 255, 2}, {300, 2052, 2}};

  // Factors of lines, norms, moments, another matrix's norms.
  Batches<Real> rows(int64_t lines, int64_t count) {
    Batches<Real> batches;
    for (uint32_t seed = 1; seed <= 4; ++seed) {
      batches.emplace_back(1, lines, count, 1);
      batches.back().randomise(seed).fill(
          [](Real& x, int64_t, int64_t, int64_t) { x = x * x + Real(0.01); });
    }
    return batches;
  }

  void expect_near(const Batches<Real>& batches, const BatchWork& work) {
    const auto expected = on_cpu(this->cpu(), batches, work);
    const auto found = on_gpu(this->gpu(), batches, work);
    for (size_t b = 0; b < batches.size(); ++b)
      for (int64_t k = 0; k < batches[b].count(); ++k)
        EXPECT_LE(distance(plain(found[b], k), plain(expected[b], k)),
                  4 * tolerance<Real>() * norm(plain(expected[b], k)));
    for (const Batch<Real>& batch : found) EXPECT_TRUE(batch.marks_untouched());
  }
};
TYPED_TEST_SUITE(CudaLines, RealTypes);

TYPED_TEST(CudaLines, NormsAreThoseOfTheCpu) {
  for (const auto& [rows, cols, count] : this->kShapes)
    for (const Lines lines : {Lines::kRows, Lines::kColumns}) {
      Batches<TypeParam> batches;
      batches.emplace_back(1, lines == Lines::kRows ? rows : cols, count, 1);
      batches.emplace_back(rows, cols, count, 1);
      batches[1].randomise(1);
      if (rows == 0) batches[0].fill([](auto& x, auto...) { x = 0; });
      if (rows > 0)
        this->expect_near(batches, [&](Engine& e, std::span<const Matrices> v) {
          e.line_norms(v[0], v[1], lines);
        });
    }
}

TYPED_TEST(CudaLines, NormsDoNotDependOnBatchOrAlignment) {
  Batch<TypeParam> batch(130, 260, 4);
  batch.randomise(9);
  const auto norms_of = [&](const Batch<TypeParam>& of) {
    Batches<TypeParam> batches = {Batch<TypeParam>(1, 130, of.count()), of};
    return on_gpu(this->gpu(), batches,
                  [](Engine& e, std::span<const Matrices> v) {
                    e.line_norms(v[0], v[1], Lines::kRows);
                  })[0];
  };
  const auto together = norms_of(batch);
  for (int64_t which = 0; which < 4; ++which)
    for (const int64_t gap : {0, 1, 4})
      EXPECT_TRUE(same_bits(norms_of(alone(batch, which, gap)).storage(),
                            alone(together, which).storage()))
          << which << " gap " << gap;
}

TYPED_TEST(CudaLines, FactorsAreThoseOfTheCpu) {
  for (const LineFactors& how : std::vector<LineFactors>{
           {.kind = Kind::kEven, .floor = 0.1},
           {.target = 3, .floor = 0.1},
           {.first = false, .target = 3, .floor = 1e9, .zero_below = true},
           {.kind = Kind::kMoments,
           .first = false,
           .floor = 1e-8,
           .keep = 0.9,
           .add = 0.1,
           .length = 77,
           .epsilon = 1e-8},
           {.kind = Kind::kMoments,
           .keep = 0.9,
           .add = 0.1,
           .epsilon = 0.5,
           .clamp = true}})
    for (const int64_t lines : {1, 5, 700})
      this->expect_near(this->rows(lines, 3),
                        [&](Engine& e, std::span<const Matrices> v) {
                          e.line_factors(v[0], v[1], how, v[2], {});
                        });
}

TYPED_TEST(CudaLines, AnotherMatrixGivesTheTargetOrTheMoment) {
  for (const Kind kind : {Kind::kWhole, Kind::kMoment})
    this->expect_near(this->rows(300, 3), [&](Engine& e,
                                              std::span<const Matrices> v) {
      Matrices one = v[2];
      one.cols = 1;
      e.line_factors(v[0], v[1],
                     {.kind = kind, .keep = 0.9, .add = 0.1, .epsilon = 1e-8},
                     one, v[3]);
    });
}

TYPED_TEST(CudaLines, ScalesRowsWithTheBitsOfTheCpu) {
  for (const auto& [rows, cols, count] : this->kShapes) {
    Batches<TypeParam> batches;
    for (uint32_t seed = 1; seed <= 2; ++seed)
      batches.emplace_back(rows, cols, count, seed - 1).randomise(seed);
    batches.emplace_back(1, rows, count, 1).randomise(3);
    const auto work = [](Engine& e, std::span<const Matrices> v) {
      e.scale_rows(v[0], v[1], v[2]);
    };
    const auto expected = on_cpu(this->cpu(), batches, work);
    const auto found = on_gpu(this->gpu(), batches, work);
    EXPECT_TRUE(same_bits(found[0].storage(), expected[0].storage()));
  }
}

// With and without gaps between matrices, so that not all are aligned.
TYPED_TEST(CudaLines, MovesWeightsWithTheBitsOfTheCpu) {
  for (const auto& [rows, cols, count] : this->kShapes)
    for (const Lines lines : {Lines::kRows, Lines::kColumns})
      for (const int kind : {0, 1, 2, 3}) {
        Batches<TypeParam> batches;
        batches.emplace_back(rows, cols, count).randomise(1);
        batches.emplace_back(rows, cols, count).randomise(2);
        batches.emplace_back(1, lines == Lines::kRows ? rows : cols, count, 1)
            .randomise(3);
        batches.emplace_back(1, rows, count, 1).randomise(4);
        const auto work = [&](Engine& e, std::span<const Matrices> v) {
          LineUpdate how{.update = v[1],
                         .factors = v[2],
                         .lines = lines,
                         .apply = {.keep_before = 0.9,
                                   .step = 0.3,
                                   .keep_after = 0.8,
                                   .cautious = kind == 1}};
          if (kind >= 2) how.lengths = v[3];
          if (kind == 3)
            e.project_lines(v[0], how);
          else
            e.apply_lines(v[0], how);
        };
        const auto expected = on_cpu(this->cpu(), batches, work);
        const auto found = on_gpu(this->gpu(), batches, work);
        const size_t result = kind == 3 ? 1 : 0;
        EXPECT_TRUE(
            same_bits(found[result].storage(), expected[result].storage()))
            << rows << " x " << cols << ", kind " << kind;
      }
}

TYPED_TEST(CudaLines, SumsOfRowsAndMovedFactorsAreThoseOfTheCpu) {
  for (const auto& [rows, cols, count] : this->kShapes) {
    if (rows == 0) continue;
    Batches<TypeParam> batches;
    for (int i = 0; i < 3; ++i) batches.emplace_back(1, rows, count, 1);
    batches.emplace_back(rows, cols, count).randomise(1);
    batches.emplace_back(rows, cols, count).randomise(2);
    batches.emplace_back(1, rows, count, 1).randomise(3);
    batches.emplace_back(1, rows, count, 1);
    for (const double target : {0.0, 3.0})
      this->expect_near(batches, [&](Engine& e, std::span<const Matrices> v) {
        const RowSums sums{v[0], v[1], v[2]};
        e.row_sums(sums, v[3], v[4]);
        e.moved_factors(v[6], sums, v[5], {.keep_before = 0.9, .step = 0.1},
                        target, 1e-9);
      });
  }
}

}  // namespace
}  // namespace canzona::linalg::cuda_lines_test

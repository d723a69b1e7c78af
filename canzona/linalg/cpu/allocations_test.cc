// Counts calls of the global operator new, so it is a separate program.
#include <gtest/gtest.h>

#include <array>

#include "canzona/base/test_allocations.h"
#include "canzona/linalg/cpu/test_support.h"
#include "canzona/linalg/engine.h"

namespace canzona::linalg::cpu_allocations_test {
namespace {

constexpr int64_t kSide = 60;
constexpr int64_t kCount = 2;

template <class Real>
struct Step {
  Batch<Real> source{kSide, kSide, kCount};
  Batch<Real> a{kSide, kSide, kCount};
  Batch<Real> b{kSide, kSide, kCount};
  Batch<Real> values{1, kSide, kCount};
  std::array<bool, kCount> succeeded = {};
  std::array<double, kCount> results = {};

  Step() { source.randomise(1); }

  void products(Engine& engine) {
    engine.product(a, 1, source, Op::kNone, source, Op::kTranspose, 0);
    engine.symmetric_product(a, 1, source, Op::kNone, 0);
    engine.commuting_product(b, a, a);
    engine.norms(a, results);
    engine.max_abs(a, results);
    engine.traces(a, results);
    engine.column_dots(values, a, source);
    engine.scale_columns(b, a, values);
    engine.scale_to_norm(b, a, 1e-8);
  }

  void decompositions(Engine& engine) {
    engine.symmetric_product(a, 1, source, Op::kNone, 0);
    engine.add_diagonal(a, 1);
    engine.copy(b, a);
    engine.eigh(b, values, succeeded);
    engine.copy(b, a);
    engine.cholesky(b, succeeded);
    engine.solve_right_transposed(a, b);
    engine.cholesky_qr(a, succeeded);
    engine.copy(a, source);
    engine.qr(a, succeeded);
  }

  void newton_schulz(Engine& engine, DType dtype) {
    Algebra& algebra = engine.algebra(dtype);
    Arena::Scope scope(engine.arena());
    Operand x = algebra.wide(engine.arena(), kSide, kSide);
    Operand r = algebra.symmetric(engine.arena(), kSide);
    Operand p = algebra.symmetric(engine.arena(), kSide);
    Operand u = algebra.symmetric(engine.arena(), kSide);
    Operand scratch = algebra.symmetric(engine.arena(), kSide);
    Load load;
    load.source = std::as_const(source).view().at(0);
    algebra.load_normalized(x, load, {});
    algebra.gram(r, x, Half::kTriangle);
    algebra.polynomial(p, r, 2, -1.5, 0.5, Half::kTriangle);
    algebra.sandwich(u, p, r, scratch);
    algebra.commuting_product(r, p, u);
    const Apply apply = {1, 0.1, 1};
    algebra.multiply_into(
        {.out = a.view().at(0), .apply = &apply, .transpose = false}, p, x);
  }
};

template <class Real>
class Allocations : public testing::Test {};
TYPED_TEST_SUITE(Allocations, RealTypes);

TYPED_TEST(Allocations, EndWithTheFirstUseOfAShape) {
  const auto engine = make_cpu_engine();
  Step<TypeParam> step;
  int64_t first = 0;
  int64_t later = 0;
  int64_t reserved = 0;
  for (int round = 0; round < 3; ++round) {
    const int64_t before = num_allocations();
    step.products(*engine);
    step.decompositions(*engine);
    step.newton_schulz(*engine, DTypeOf<TypeParam>::value);
    (round == 0 ? first : later) += num_allocations() - before;
    if (round == 0) reserved = engine->arena().reserved();
  }
  EXPECT_GT(first, 0);  // or nothing was counted
  EXPECT_EQ(later, 0);
  EXPECT_EQ(engine->arena().reserved(), reserved);
}

TEST(AllocationsInBf16, EndWithTheFirstUseOfAShape) {
  const auto engine = make_cpu_engine();
  Step<float> step;
  step.newton_schulz(*engine, DType::kBf16);
  const int64_t before = num_allocations();
  step.newton_schulz(*engine, DType::kBf16);
  EXPECT_EQ(num_allocations(), before);
}

}  // namespace
}  // namespace canzona::linalg::cpu_allocations_test

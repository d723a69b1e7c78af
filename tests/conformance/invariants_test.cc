#include "tests/conformance/fixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace canzona::tests::invariants_test {
namespace {

using testing::DoubleNear;
using testing::ElementsAre;

// A rotation by an angle, and the matrix diag(3, 1) in its basis.
struct Turned {
  explicit Turned(double angle)
      : q{std::cos(angle), -std::sin(angle), std::sin(angle), std::cos(angle)} {
    const double c = std::cos(angle), s = std::sin(angle);
    f = {3 * c * c + s * s, 2 * c * s, 2 * c * s, 3 * s * s + c * c};
  }
  Square q, f;
};

TEST(Invariants, OfATrueBasisAreZero) {
  const Turned turned(0.7);
  EXPECT_NEAR(orthogonality_error(turned.q, 2), 0, 1e-15);
  EXPECT_NEAR(off_diagonal_share(turned.q, turned.f, 2), 0, 1e-15);
  EXPECT_THAT(eigenvalue_estimates(turned.q, turned.f, 2),
              ElementsAre(DoubleNear(3, 1e-14), DoubleNear(1, 1e-14)));
}

TEST(Invariants, TellABasisThatIsNone) {
  const Turned turned(0.7);
  EXPECT_NEAR(orthogonality_error({1, 0, 0, 1.5}, 2), 1.25, 1e-15);
  // diag(3, 1) rotated by 45 degrees has two elements of 1 off the diagonal.
  EXPECT_NEAR(
      off_diagonal_share(Turned(std::acos(-1.0) / 4).q, {3, 0, 0, 1}, 2),
      std::sqrt(2.0 / 10), 1e-15);
  EXPECT_TRUE(std::isnan(orthogonality_error({NAN, 0, 0, 1}, 2)));
}

TEST(Invariants, OfNothingAreZeroAndOfLargeNumbersFinite) {
  EXPECT_EQ(off_diagonal_share({1, 0, 0, 1}, {0, 0, 0, 0}, 2), 0);
  EXPECT_NEAR(off_diagonal_share({1, 0, 0, 1}, {1e200, 0, 0, 1e200}, 2), 0,
              1e-15);
}

TEST(Invariants, ResidualsOfRoots) {
  const Square a = {16, 0, 0, 81};
  EXPECT_NEAR(root_residual(a, {0.5, 0, 0, 1.0 / 3}, 2, 4, 1), 0, 1e-14);
  EXPECT_NEAR(root_residual(a, {0.125, 0, 0, 1.0 / 27}, 2, 4, 3), 0, 1e-12);
  EXPECT_GT(root_residual(a, {0.5, 0, 0, 0.34}, 2, 4, 1), 0.05);
}

}  // namespace
}  // namespace canzona::tests::invariants_test

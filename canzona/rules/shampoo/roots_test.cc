#include "canzona/rules/shampoo/roots.h"

#include <gmock/gmock.h>

#include <cmath>

#include "canzona/rules/test_matrices.h"

namespace canzona::rules::roots_test {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

constexpr RootMethod kMethods[] = {RootMethod::kEigen, RootMethod::kNewton,
                                   RootMethod::kHigher};

RootOptions options_of(RootMethod method, double epsilon = 0) {
  RootOptions options;
  options.method = method;
  options.epsilon = epsilon;
  options.abs_epsilon = epsilon;
  options.tolerance = 1e-12;
  return options;
}

struct Result {
  RootStatus status;
  PlainMatrix x;
};

// Computes the roots of matrices of one size together, on this engine.
template <class Real>
std::vector<Result> roots_of(Engine& engine,
                             const std::vector<PlainMatrix>& all,
                             InversePower power, const RootOptions& options) {
  const int64_t n = all[0].rows;
  const auto count = std::ssize(all);
  std::vector<Real> in;
  for (const PlainMatrix& a : all)
    in.insert(in.end(), a.values.begin(), a.values.end());
  std::vector<Real> out(in.size());
  std::vector<RootStatus> statuses(all.size());
  inverse_roots(engine, matrices(out.data(), n, n, count),
                matrices(std::as_const(in).data(), n, n, count), power, options,
                statuses);
  std::vector<Result> results;
  for (size_t i = 0; i < all.size(); ++i) {
    results.push_back({statuses[i], PlainMatrix(n, n)});
    const Real* from = out.data() + static_cast<int64_t>(i) * n * n;
    results[i].x.values.assign(from, from + n * n);
  }
  return results;
}

template <class Real>
Result root_of(const PlainMatrix& a, InversePower power,
               const RootOptions& options) {
  const auto engine = make_cpu_engine();
  return roots_of<Real>(*engine, {a}, power, options)[0];
}

PlainMatrix power_of(const PlainMatrix& a, int64_t times) {
  PlainMatrix product = a;
  for (int64_t i = 1; i < times; ++i) product = product * a;
  return product;
}

PlainMatrix identity(int64_t n) {
  PlainMatrix a(n, n);
  for (int64_t i = 0; i < n; ++i) a(i, i) = 1;
  return a;
}

double max_distance(const PlainMatrix& a, const PlainMatrix& b) {
  double largest = 0;
  for (size_t i = 0; i < a.values.size(); ++i)
    largest = std::max(largest, std::fabs(a.values[i] - b.values[i]));
  return largest;
}

// max |A^q·X^p - I|
double residual(const PlainMatrix& a, const PlainMatrix& x,
                InversePower power) {
  return max_distance(power_of(a, power.q) * power_of(x, power.p),
                      identity(a.rows));
}

PlainMatrix tridiagonal(int64_t n, double diagonal, double beside) {
  PlainMatrix a(n, n);
  for (int64_t i = 0; i < n; ++i) {
    a(i, i) = diagonal;
    if (i > 0) a(i, i - 1) = a(i - 1, i) = beside;
  }
  return a;
}

// Symmetric, with eigenvalues from 1 down to 1/condition in geometric steps.
PlainMatrix conditioned(int64_t n, double condition, uint64_t seed) {
  Stream stream(seed);
  const PlainMatrix q = orthonormal(n, n, stream);
  PlainMatrix scaled = q;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      scaled(i, j) *= std::pow(
          condition, -static_cast<double>(j) / static_cast<double>(n - 1));
  PlainMatrix a = scaled * transposed(q);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < i; ++j) a(i, j) = a(j, i);
  return a;
}

TEST(InverseRoot, FindsKnownRoots) {
  PlainMatrix a(3, 3);
  a.values = {4, 1, 0, 1, 3, 1, 0, 1, 2};
  const std::vector<double> half = {
      5.180476847988e-01,  -9.148160755398e-02, 3.217902316314e-02,
      -9.148160755398e-02, 6.417083155159e-01,  -1.558396538803e-01,
      3.217902316314e-02,  -1.558396538803e-01, 7.653689462330e-01};
  const std::vector<double> quarter = {
      7.170928749682e-01,  -5.952910139416e-02, 1.678629071077e-02,
      -5.952910139416e-02, 7.934082670731e-01,  -9.310168281570e-02,
      1.678629071077e-02,  -9.310168281570e-02, 8.697236591781e-01};
  for (RootMethod method : kMethods) {
    const RootOptions options = options_of(method);
    EXPECT_THAT(root_of<double>(a, {.p = 2}, options).x.values,
                Pointwise(DoubleNear(2e-12), half));
    EXPECT_THAT(root_of<double>(a, {.p = 4}, options).x.values,
                Pointwise(DoubleNear(2e-12), quarter));
  }
}

TEST(InverseRoot, LeavesTheIdentity) {
  for (RootMethod method : kMethods) {
    for (int64_t n : {1, 2, 10, 33}) {
      const Result root =
          root_of<double>(identity(n), {.p = 4}, options_of(method));
      EXPECT_TRUE(root.status.succeeded);
      EXPECT_LT(max_distance(root.x, identity(n)), 1e-12) << n;
    }
  }
}

TEST(InverseRoot, OfANumberIsItsPower) {
  for (RootMethod method : kMethods) {
    PlainMatrix a(1, 1);
    for (double value : {0x1p-40, 0.25, 3.0, 0x1p40}) {
      a(0, 0) = value;
      const double x = root_of<double>(a, {.p = 4}, options_of(method)).x(0, 0);
      EXPECT_NEAR(x * std::pow(value, 0.25), 1, 1e-12) << value;
    }
  }
}

TEST(InverseRoot, OfTridiagonalMatricesHasASmallResidual) {
  for (RootMethod method : kMethods) {
    for (int64_t p : {1, 2, 3, 4, 6, 8}) {
      for (const PlainMatrix& a :
           {tridiagonal(10, 2, -1), tridiagonal(40, 4, 1)}) {
        const Result root = root_of<double>(a, {.p = p}, options_of(method));
        EXPECT_TRUE(root.status.succeeded) << root.status.reason;
        EXPECT_LT(residual(a, root.x, {.p = p}), 1e-9)
            << "p " << p << " method " << static_cast<int>(method);
        const Result single = root_of<float>(a, {.p = p}, options_of(method));
        EXPECT_LT(residual(a, single.x, {.p = p}), 1e-3) << "p " << p;
      }
    }
  }
}

TEST(InverseRoot, TakesFractions) {
  const PlainMatrix a = tridiagonal(12, 3, 1);
  const InversePower power{.p = 8, .q = 3};
  for (RootMethod method : {RootMethod::kEigen, RootMethod::kHigher}) {
    const Result root = root_of<double>(a, power, options_of(method));
    EXPECT_LT(residual(a, root.x, power), 1e-9);
  }
}

// A = 2·uuᵀ + 8·vvᵀ with u, v orthonormal: of rank two in three dimensions.
TEST(InverseRoot, APseudoInverseLeavesTheNullSpaceAlone) {
  const double r = std::sqrt(0.5);
  const auto of = [&](double u, double v) {
    PlainMatrix a(3, 3);
    a(0, 0) = a(1, 1) = (u + v) * r * r;
    a(0, 1) = a(1, 0) = (u - v) * r * r;
    return a;
  };
  RootOptions options;
  options.method = RootMethod::kPseudo;
  const auto root = root_of<double>(of(2, 8), {.p = 2}, options);
  EXPECT_LT(max_distance(root.x, of(1 / std::sqrt(2.), 1 / std::sqrt(8.))),
            1e-14);
  const auto single = root_of<float>(of(2, 8), {.p = 4}, options);
  EXPECT_LT(max_distance(single.x, of(std::pow(2, -0.25), std::pow(8, -0.25))),
            1e-6);
  options.rank_rtol = 0.25;
  EXPECT_LT(max_distance(root_of<double>(of(2, 8), {.p = 2}, options).x,
                         of(0, 1 / std::sqrt(8.))),
            1e-14)
      << "what equals the bound counts as 0";
  options.rank_rtol = 0;
  options.rank_atol = 9;
  EXPECT_EQ(max_distance(root_of<double>(of(2, 8), {.p = 2}, options).x,
                         PlainMatrix(3, 3)),
            0);
}

// Ten polynomials come within 1e-3 of the square root up to condition 1e4.
TEST(InverseRoot, CansComesNearToSquareRoots) {
  RootOptions options;
  options.method = RootMethod::kCans;
  for (int64_t n : {1, 2, 24})
    for (double size : {1e-20, 1.0, 1e20}) {
      PlainMatrix a = n == 1 ? identity(1) : conditioned(n, 1e4, 5);
      for (double& x : a.values) x *= size;
      const bool tiny = size < 1;
      const auto x = root_of<float>(a, {.p = 2}, options).x;
      EXPECT_EQ(transposed(x).values, x.values);
      if (!tiny) {
        EXPECT_LT(residual(a, x, {.p = 2}), 1e-2) << n << " " << size;
      }
    }
  const PlainMatrix zero(3, 3);
  for (double x : root_of<float>(zero, {.p = 2}, options).x.values)
    EXPECT_TRUE(std::isfinite(x));
}

TEST(InverseRoot, IsExactlySymmetric) {
  const PlainMatrix a = conditioned(20, 1e4, 3);
  for (RootMethod method : kMethods) {
    const PlainMatrix x =
        root_of<float>(a, {.p = 4}, options_of(method, 1e-5)).x;
    EXPECT_EQ(transposed(x).values, x.values);
  }
}

// Errors are a small multiple of rounding times the condition number.
TEST(InverseRoot, D6FollowsTheConditionNumber) {
  for (RootMethod method : kMethods) {
    for (double condition : {1e2, 1e4, 1e6}) {
      const PlainMatrix a = conditioned(24, condition, 5);
      const Result root = root_of<double>(a, {.p = 4}, options_of(method));
      EXPECT_LT(residual(a, root.x, {.p = 4}), 1e-13 * condition);
    }
    const PlainMatrix a = conditioned(24, 1e4, 5);
    const Result exact = root_of<double>(a, {.p = 4}, options_of(method));
    const Result single = root_of<float>(a, {.p = 4}, options_of(method));
    EXPECT_LT(distance(single.x, exact.x), 1e-3 * frobenius(exact.x));
  }
}

TEST(InverseRoot, NewtonTakesAsManyIterationsAsFactsCount) {
  RootOptions options = options_of(RootMethod::kNewton);
  options.tolerance = 1e-6;
  options.max_iterations = 18;
  const PlainMatrix a = conditioned(64, 1e5, 9);
  const Result root = root_of<double>(a, {.p = 4}, options);
  EXPECT_LE(root.status.error, 1e-6);
  EXPECT_LE(root.status.iterations, 18);
  EXPECT_GE(root.status.iterations, 14);
}

TEST(InverseRoot, DampingIsAddedToTheMatrix) {
  for (RootMethod method : kMethods) {
    const PlainMatrix a = tridiagonal(6, 2, -1);
    const Result damped = root_of<double>(a, {.p = 4}, options_of(method, 0.5));
    const Result shifted =
        root_of<double>(tridiagonal(6, 2.5, -1), {.p = 4}, options_of(method));
    EXPECT_LT(max_distance(damped.x, shifted.x), 1e-12);
  }
}

TEST(InverseRoot, RelativeDampingFollowsTheNorm) {
  for (RootMethod method : kMethods) {
    RootOptions options = options_of(method, 1e-9);
    options.rel_epsilon = 0.01;
    const PlainMatrix a = tridiagonal(6, 2, -1);
    const Result relative = root_of<double>(a, {.p = 4}, options);
    const Result absolute =
        root_of<double>(a, {.p = 4}, options_of(method, 0.01 * frobenius(a)));
    EXPECT_LT(max_distance(relative.x, absolute.x), 1e-12);
  }
}

// An eigenvalue that rounding left below zero is raised to the damping itself.
TEST(InverseRoot, ByEigenvectorsLiftsWhatIsBelowTheDamping) {
  PlainMatrix a(2, 2);
  a.values = {1, 0, 0, -0.03125};
  const Result root =
      root_of<double>(a, {.p = 4}, options_of(RootMethod::kEigen, 0.0625));
  EXPECT_NEAR(root.x(1, 1), 2, 1e-12);
  EXPECT_NEAR(root.x(0, 0), std::pow(1.09375, -0.25), 1e-12);
}

TEST(InverseRoot, ByEigenvectorsMayAddTheDampingAfterwards) {
  PlainMatrix a(2, 2);
  a.values = {1, 0, 0, -0.5};  // the negative eigenvalue is first raised to 0
  RootOptions options = options_of(RootMethod::kEigen, 0.0625);
  options.perturb_before = false;
  const Result root = root_of<double>(a, {.p = 4}, options);
  EXPECT_NEAR(root.x(1, 1), 2, 1e-12);
  EXPECT_NEAR(root.x(0, 0), std::pow(1.5625, -0.25), 1e-12);
}

TEST(InverseRoot, SaysWhyThereIsNone) {
  for (RootMethod method : {RootMethod::kNewton, RootMethod::kHigher}) {
    const Result zero =
        root_of<double>(PlainMatrix(3, 3), {.p = 4}, options_of(method));
    EXPECT_FALSE(zero.status.succeeded);
    EXPECT_STREQ(zero.status.reason, "the matrix is zero and not damped");
  }
}

TEST(InverseRoot, RefusesWhatIsFarFromARoot) {
  for (RootMethod method : {RootMethod::kNewton, RootMethod::kHigher}) {
    RootOptions options = options_of(method);
    options.max_iterations = 2;
    const Result root =
        root_of<double>(conditioned(8, 1e8, 2), {.p = 4}, options);
    EXPECT_FALSE(root.status.succeeded);
    EXPECT_EQ(root.status.iterations, 2);
    EXPECT_GT(root.status.error, 0.1);
  }
}

TEST(InverseRoot, AcceptsAnIterationThatCameNear) {
  RootOptions options = options_of(RootMethod::kNewton);
  options.tolerance = 0;
  options.max_iterations = 25;
  const PlainMatrix a = conditioned(8, 1e4, 2);
  const Result root = root_of<float>(a, {.p = 4}, options);
  EXPECT_TRUE(root.status.succeeded);
  EXPECT_EQ(root.status.iterations, 25);
}

}  // namespace
}  // namespace canzona::rules::roots_test

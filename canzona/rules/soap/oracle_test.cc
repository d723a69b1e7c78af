// The rule against a plain transcription of the original algorithm in fp64:
// eigenvectors by Jacobi, QR by Gram–Schmidt, and the first moment rotated out
// of the basis and back in every step. Also laws that hold for any gradient.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::oracle_test {
namespace {

constexpr double kRate = 0x1p-6;
constexpr double kBeta = 0.95;
constexpr double kEpsilon = 1e-8;
constexpr double kDecay = 0.01;

PlainMatrix identity(int64_t n) {
  PlainMatrix e(n, n);
  for (int64_t i = 0; i < n; ++i) e(i, i) = 1;
  return e;
}

// Eigenvectors by descending eigenvalue: cyclic rotations until A is diagonal.
PlainMatrix eigenvectors(PlainMatrix a) {
  const int64_t n = a.rows;
  PlainMatrix v = identity(n);
  for (int sweep = 0; sweep < 30; ++sweep)
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (a(p, q) == 0) continue;
        const double angle = std::atan2(2 * a(p, q), a(q, q) - a(p, p)) / 2;
        PlainMatrix turn = identity(n);
        turn(p, p) = turn(q, q) = std::cos(angle);
        turn(p, q) = std::sin(angle);
        turn(q, p) = -std::sin(angle);
        a = transposed(turn) * a * turn;
        v = v * turn;
      }
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](int64_t i, int64_t j) { return a(i, i) > a(j, j); });
  PlainMatrix sorted(n, n);
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < n; ++i)
      sorted(i, j) = v(i, order[static_cast<size_t>(j)]);
  return sorted;
}

PlainMatrix orthonormal_columns(PlainMatrix q) {
  for (int64_t j = 0; j < q.cols; ++j) {
    for (int round = 0; round < 2; ++round)
      for (int64_t k = 0; k < j; ++k) {
        double dot = 0;
        for (int64_t i = 0; i < q.rows; ++i) dot += q(i, j) * q(i, k);
        for (int64_t i = 0; i < q.rows; ++i) q(i, j) -= dot * q(i, k);
      }
    double sum = 0;
    for (int64_t i = 0; i < q.rows; ++i) sum += q(i, j) * q(i, j);
    for (int64_t i = 0; i < q.rows; ++i) q(i, j) /= std::sqrt(sum);
  }
  return q;
}

// The original algorithm, literally, on a matrix with both factors, or with
// that of the rows alone.
struct Oracle {
  PlainMatrix p, m, v, l, r, ql, qr;
  int calls = 0;
  int period;
  bool has_right;

  Oracle(PlainMatrix start, int frequency, bool both = true)
      : p(start),
        m(p.rows, p.cols),
        v(p.rows, p.cols),
        l(p.rows, p.rows),
        r(p.cols, p.cols),
        ql(identity(p.rows)),
        qr(identity(p.cols)),
        period(frequency),
        has_right(both) {}

  static void average(PlainMatrix& f, const PlainMatrix& seen) {
    for (size_t i = 0; i < f.values.size(); ++i)
      f.values[i] += (1 - kBeta) * (seen.values[i] - f.values[i]);
  }
  void see(const PlainMatrix& g) {
    average(l, g * transposed(g));
    if (has_right) average(r, transposed(g) * g);
  }

  // The new basis of one side; permutes the second moment's rows accordingly.
  static PlainMatrix renewed(const PlainMatrix& f, const PlainMatrix& q,
                             PlainMatrix& rows) {
    const PlainMatrix seen = transposed(q) * f * q;
    std::vector<int64_t> order(static_cast<size_t>(f.rows));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](int64_t i, int64_t j) { return seen(i, i) > seen(j, j); });
    PlainMatrix taken(f.rows, f.rows);
    PlainMatrix moved(rows.rows, rows.cols);
    for (int64_t j = 0; j < f.rows; ++j) {
      const int64_t from = order[static_cast<size_t>(j)];
      for (int64_t i = 0; i < f.rows; ++i) taken(i, j) = q(i, from);
      for (int64_t i = 0; i < rows.cols; ++i) moved(j, i) = rows(from, i);
    }
    rows = moved;
    return orthonormal_columns(f * taken);
  }

  void call(const PlainMatrix& g) {
    if (calls++ == 0) {
      see(g);
      ql = eigenvectors(l);
      if (has_right) qr = eigenvectors(r);
      return;
    }
    const int s = calls - 1;
    const PlainMatrix rotated = transposed(ql) * g * qr;
    PlainMatrix u = rotated;
    for (size_t i = 0; i < u.values.size(); ++i) {
      const double x = rotated.values[i];
      m.values[i] = kBeta * m.values[i] + (1 - kBeta) * x;
      v.values[i] = kBeta * v.values[i] + (1 - kBeta) * x * x;
      u.values[i] = m.values[i] / (std::sqrt(v.values[i]) + kEpsilon);
    }
    u = ql * u * transposed(qr);
    const double bias = 1 - std::pow(kBeta, s);
    const double rate = kRate * std::sqrt(bias) / bias;
    for (size_t i = 0; i < u.values.size(); ++i) {
      p.values[i] -= rate * u.values[i];
      p.values[i] -= kRate * kDecay * p.values[i];
    }
    const PlainMatrix original = ql * m * transposed(qr);
    see(g);
    if (s % period == 0) {
      ql = renewed(l, ql, v);
      if (has_right) {
        PlainMatrix columns = transposed(v);
        qr = renewed(r, qr, columns);
        v = transposed(columns);
      }
    }
    m = transposed(ql) * original * qr;
  }
};

// Gradients whose factors have simple, well-separated eigenvalues.
PlainMatrix next_gradient(int64_t n, Stream& stream) {
  std::vector<double> spectrum(static_cast<size_t>(n));
  for (size_t i = 0; i < spectrum.size(); ++i)
    spectrum[i] = std::pow(0.6, static_cast<double>(i));
  return with_spectrum(spectrum, n, stream);
}

RuleOptions with_period(int period) {
  return {{"precondition_frequency", std::to_string(period)}};
}

TestTensor<double> tensor_of(const RuleOptions& options,
                             const PlainMatrix& start,
                             DecompositionHook* hook = nullptr) {
  return {make_rule("soap", options, DType::kFp64),
          {start.rows, start.cols},
          start.values,
          hook};
}

double largest_difference(const std::vector<double>& a,
                          const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::fabs(a[i] - b[i]));
  return largest;
}

// Ten calls with a refresh every three or four calls.
TEST(SoapOracle, AgreesAcrossRefreshes) {
  const auto engine = make_cpu_engine();
  for (int period : {3, 4}) {
    for (const char* refresh : {"qr", "cholesky_qr"}) {
      Stream stream(7);
      const PlainMatrix start = gaussian(5, 5, stream);
      Oracle oracle(start, period);
      RuleOptions options = with_period(period);
      options["refresh"] = refresh;
      TestTensor<double> soap = tensor_of(options, start);
      for (int t = 1; t <= 10; ++t) {
        const PlainMatrix g = next_gradient(5, stream);
        oracle.call(g);
        soap.step(*engine, g.values, kRate);
        EXPECT_LT(largest_difference(soap.weights, oracle.p.values), 1e-9)
            << refresh << " every " << period << ", call " << t;
        EXPECT_LT(largest_difference(soap.state("exp_avg_sq"), oracle.v.values),
                  1e-9);
        EXPECT_LT(largest_difference(soap.state("L"), oracle.l.values), 1e-13);
      }
    }
  }
}

// The same with one factor, wide and tall, in strips of the other side.
TEST(SoapOracle, AgreesAcrossRefreshesInStrips) {
  const auto engine = make_cpu_engine();
  constexpr int64_t kSide = 4, kAcross = 150;
  for (const bool tall : {false, true})
    for (const char* strips : {"1", "2"}) {
      Stream stream(9);
      PlainMatrix start = gaussian(kSide, kAcross, stream);
      Oracle oracle(start, 3, false);
      RuleOptions options = with_period(3);
      options["max_preconditioner_dim"] = "100";
      options["strips"] = strips;
      if (tall) start = transposed(start);
      TestTensor<double> soap = tensor_of(options, start);
      for (int t = 1; t <= 10; ++t) {
        PlainMatrix g = with_spectrum({1, 0.6, 0.3, 0.1}, kAcross, stream);
        oracle.call(g);
        PlainMatrix p = oracle.p, v = oracle.v;
        if (tall) {
          g = transposed(g);
          p = transposed(p);
          v = transposed(v);
        }
        soap.step(*engine, g.values, kRate);
        EXPECT_LT(largest_difference(soap.weights, p.values), 1e-9)
            << strips << (tall ? " tall" : " wide") << ", call " << t;
        EXPECT_LT(largest_difference(soap.state("exp_avg_sq"), v.values), 1e-9);
        EXPECT_LT(
            largest_difference(soap.state(tall ? "R" : "L"), oracle.l.values),
            1e-13);
      }
    }
}

// The algebra is the same, whichever space the first moment is kept in.
TEST(SoapOracle, SpaceOfTheFirstMomentIsNoMatter) {
  const auto engine = make_cpu_engine();
  Stream stream(8);
  const PlainMatrix start = gaussian(4, 4, stream);
  RuleOptions options = with_period(2);
  TestTensor<double> eigen = tensor_of(options, start);
  options["momentum_basis"] = "original";
  TestTensor<double> original = tensor_of(options, start);
  for (int t = 1; t <= 7; ++t) {
    const PlainMatrix g = next_gradient(4, stream);
    eigen.step(*engine, g.values, kRate);
    original.step(*engine, g.values, kRate);
    EXPECT_LT(largest_difference(eigen.weights, original.weights), 1e-10);
  }
}

// For a wide matrix, the first moment is moved by the product of both bases.
TEST(SoapOracle, MovesTheFirstMomentWithTheBasis) {
  const auto engine = make_cpu_engine();
  for (const auto& [rows, cols] : {std::pair{3, 8}, std::pair{8, 3}}) {
    Stream stream(9);
    const PlainMatrix start = gaussian(rows, cols, stream);
    TestTensor<double> soap = tensor_of(with_period(2), start);
    PlainMatrix expected(rows, cols);
    for (int t = 1; t <= 7; ++t) {
      const PlainMatrix g = gaussian(rows, cols, stream);
      soap.step(*engine, g.values, kRate);
      if (t == 1) continue;
      Oracle::average(expected, g);
      PlainMatrix ql(rows, rows), qr(cols, cols), m(rows, cols);
      ql.values = soap.state("Q_L");
      qr.values = soap.state("Q_R");
      m.values = soap.state("exp_avg");
      EXPECT_LT(distance(ql * m * transposed(qr), expected), 1e-13);
    }
  }
}

// In the first update every rotated entry is divided by its own magnitude.
TEST(SoapOracle, FirstUpdateIsTheSignInTheBasis) {
  const auto engine = make_cpu_engine();
  Stream stream(10);
  const PlainMatrix start = gaussian(4, 6, stream);
  TestTensor<double> soap =
      tensor_of({{"weight_decay", "0"}, {"epsilon", "0.001"}}, start);
  soap.step(*engine, gaussian(4, 6, stream).values, kRate);
  PlainMatrix ql(4, 4), qr(6, 6);
  ql.values = soap.state("Q_L");
  qr.values = soap.state("Q_R");
  const PlainMatrix g = gaussian(4, 6, stream);
  soap.step(*engine, g.values, kRate);
  PlainMatrix u = transposed(ql) * g * qr;
  for (double& x : u.values) x /= std::fabs(x) + 0.001 / std::sqrt(1 - kBeta);
  u = ql * u * transposed(qr);
  PlainMatrix expected = start;
  for (size_t i = 0; i < u.values.size(); ++i)
    expected.values[i] -= kRate * u.values[i];
  EXPECT_LT(largest_difference(soap.weights, expected.values), 1e-13);
}

// Adam one call late, with epsilon added before the bias correction and decay
// after.
TEST(SoapOracle, IsAdamWithoutFactors) {
  const auto engine = make_cpu_engine();
  Stream stream(11);
  const PlainMatrix start = gaussian(4, 3, stream);
  TestTensor<double> soap = tensor_of({{"max_preconditioner_dim", "2"}}, start);
  std::vector<double> p = start.values;
  std::vector<double> m(p.size());
  std::vector<double> v(p.size());
  for (int t = 1; t <= 5; ++t) {
    const PlainMatrix g = gaussian(4, 3, stream);
    soap.step(*engine, g.values, kRate);
    const double bias = 1 - std::pow(kBeta, t - 1);
    for (size_t i = 0; i < p.size() && t > 1; ++i) {
      const double x = g.values[i];
      m[i] = kBeta * m[i] + (1 - kBeta) * x;
      v[i] = kBeta * v[i] + (1 - kBeta) * x * x;
      p[i] -= kRate * (m[i] / bias) /
              (std::sqrt(v[i] / bias) + kEpsilon / std::sqrt(bias));
      p[i] *= 1 - kRate * kDecay;
    }
    EXPECT_LT(largest_difference(soap.weights, p), 1e-14) << "call " << t;
  }
}

// Flips the signs of some vectors of every new basis.
class SignFlips final : public DecompositionHook {
 public:
  bool basis(const FactorId& part, Matrices q, Matrices) override {
    for (int64_t j = part.axis; j < q.cols; j += 2)
      for (int64_t i = 0; i < q.rows; ++i)
        q.as<double>()[i * q.row_stride + j] *= -1;
    return true;
  }
};

TEST(SoapOracle, SignsOfEigenvectorsAreNoMatter) {
  const auto engine = make_cpu_engine();
  for (const char* preset : {"canzona", "nvidia-kl", "meta"}) {
    Stream stream(12);
    const PlainMatrix start = gaussian(5, 5, stream);
    SignFlips flips;
    RuleOptions options = with_period(2);
    options["preset"] = preset;
    TestTensor<double> plain = tensor_of(options, start);
    TestTensor<double> flipped = tensor_of(options, start, &flips);
    for (int t = 1; t <= 6; ++t) {
      const PlainMatrix g = next_gradient(5, stream);
      plain.step(*engine, g.values, kRate);
      flipped.step(*engine, g.values, kRate);
      EXPECT_LT(largest_difference(plain.weights, flipped.weights), 1e-12)
          << preset;
    }
  }
}

// Rotated weights and gradients give rotated steps.
TEST(SoapOracle, FollowsRotations) {
  const auto engine = make_cpu_engine();
  Stream stream(13);
  const PlainMatrix start = gaussian(4, 4, stream);
  const PlainMatrix a = orthonormal(4, 4, stream);
  const PlainMatrix b = orthonormal(4, 4, stream);
  TestTensor<double> plain = tensor_of(with_period(2), start);
  TestTensor<double> turned = tensor_of(with_period(2), a * start * b);
  for (int t = 1; t <= 6; ++t) {
    const PlainMatrix g = next_gradient(4, stream);
    plain.step(*engine, g.values, kRate);
    turned.step(*engine, (a * g * b).values, kRate);
    PlainMatrix weights = start;
    weights.values = plain.weights;
    EXPECT_LT(largest_difference(turned.weights, (a * weights * b).values),
              1e-9);
  }
}

}  // namespace
}  // namespace canzona::rules::oracle_test

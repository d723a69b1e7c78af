// Shampoo against a plain transcription of it: loops over indices in fp64,
// roots by Jacobi rotations.
#include <gmock/gmock.h>

#include <cmath>

#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"

namespace canzona::rules::rule_oracle_test {
namespace {

// A^(-exponent) of a symmetric matrix.
PlainMatrix plain_root(PlainMatrix a, double exponent) {
  const int64_t n = a.rows;
  PlainMatrix v(n, n);
  for (int64_t i = 0; i < n; ++i) v(i, i) = 1;
  for (int sweep = 0; sweep < 30; ++sweep)
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        if (a(p, q) == 0) continue;
        const double angle = 0.5 * std::atan2(2 * a(p, q), a(q, q) - a(p, p));
        const double c = std::cos(angle), s = std::sin(angle);
        const auto turn = [&](double& x, double& y) {
          const double old = x;
          x = c * old - s * y;
          y = s * old + c * y;
        };
        for (int64_t k = 0; k < n; ++k) turn(a(k, p), a(k, q));
        for (int64_t k = 0; k < n; ++k) turn(a(p, k), a(q, k));
        for (int64_t k = 0; k < n; ++k) turn(v(k, p), v(k, q));
      }
  PlainMatrix scaled = v;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      scaled(i, j) *= std::pow(a(j, j), -exponent);
  return scaled * transposed(v);
}

struct Plan {
  int period = 1;
  int start = 1;
  double beta1 = 0.9, beta2 = 0.95, beta3 = 0.9;
  double epsilon = 1e-3, grafting_epsilon = 1e-8, decay = 0.1;
};

// One block, with its own factors, moments and length.
class PlainShampoo {
 public:
  PlainShampoo(Dims dims, const Plan& plan)
      : dims_(std::move(dims)),
        plan_(plan),
        size_(static_cast<size_t>(num_elements(dims_))),
        m_(size_),
        v_(size_) {
    for (int64_t d : dims_) {
      factors_.emplace_back(d, d);
      PlainMatrix root(d, d);
      for (int64_t i = 0; i < d; ++i) root(i, i) = 1;
      roots_.push_back(root);
    }
  }

  std::vector<double> direction(const std::vector<double>& g) {
    ++t_;
    for (size_t axis = 0; axis < dims_.size(); ++axis) add_factor(axis, g);
    if (t_ == plan_.start || (t_ > plan_.start && t_ % plan_.period == 0))
      for (size_t axis = 0; axis < dims_.size(); ++axis) refresh(axis);
    std::vector<double> filtered(size_), grafted(size_);
    for (size_t i = 0; i < size_; ++i) {
      filtered[i] = plan_.beta3 * m_[i] + (1 - plan_.beta3) * g[i];
      filtered[i] /= 1 - plan_.beta3 * std::pow(plan_.beta1, t_ - 1);
      m_[i] = plan_.beta1 * m_[i] + (1 - plan_.beta1) * g[i];
      v_[i] = plan_.beta2 * v_[i] + (1 - plan_.beta2) * g[i] * g[i];
      const double second = v_[i] / (1 - std::pow(plan_.beta2, t_));
      grafted[i] = filtered[i] / (std::sqrt(second) + plan_.grafting_epsilon);
    }
    if (t_ < plan_.start) return grafted;
    std::vector<double> d = filtered;
    for (size_t axis = 0; axis < dims_.size(); ++axis) d = along(axis, d);
    const double ratio = length(grafted) / length(d);
    for (double& x : d) x *= ratio;
    return d;
  }

 private:
  // The distance between elements that are adjacent along the axis.
  size_t stride(size_t axis) const {
    size_t stride = 1;
    for (size_t i = axis + 1; i < dims_.size(); ++i)
      stride *= static_cast<size_t>(dims_[i]);
    return stride;
  }
  int64_t index(size_t axis, size_t element) const {
    return static_cast<int64_t>(element / stride(axis)) % dims_[axis];
  }

  void add_factor(size_t axis, const std::vector<double>& g) {
    PlainMatrix& f = factors_[axis];
    for (double& x : f.values) x *= plan_.beta2;
    for (size_t a = 0; a < size_; ++a)
      for (int64_t j = 0; j < dims_[axis]; ++j) {
        const int64_t i = index(axis, a);
        const size_t b = a + stride(axis) * static_cast<size_t>(j) -
                         stride(axis) * static_cast<size_t>(i);
        f(i, j) += (1 - plan_.beta2) * g[a] * g[b];
      }
  }

  void refresh(size_t axis) {
    PlainMatrix a = factors_[axis];
    for (double& x : a.values) x /= 1 - std::pow(plan_.beta2, t_);
    for (int64_t i = 0; i < a.rows; ++i) a(i, i) += plan_.epsilon;
    roots_[axis] = plain_root(a, 0.5 / static_cast<double>(dims_.size()));
  }

  std::vector<double> along(size_t axis, const std::vector<double>& x) const {
    std::vector<double> y(size_);
    for (size_t a = 0; a < size_; ++a)
      for (int64_t j = 0; j < dims_[axis]; ++j) {
        const int64_t i = index(axis, a);
        const size_t b = a + stride(axis) * static_cast<size_t>(j) -
                         stride(axis) * static_cast<size_t>(i);
        y[a] += roots_[axis](i, j) * x[b];
      }
    return y;
  }

  static double length(const std::vector<double>& x) {
    double sum = 0;
    for (double value : x) sum += value * value;
    return std::sqrt(sum);
  }

  Dims dims_;
  Plan plan_;
  size_t size_;
  int t_ = 0;
  std::vector<double> m_, v_;
  std::vector<PlainMatrix> factors_, roots_;
};

RuleOptions options_of(const Plan& plan, const char* root) {
  const auto text = [](double x) {
    std::ostringstream out;
    out << x;
    return out.str();
  };
  return {{"preset", "canzona"},
          {"precondition_frequency", text(plan.period)},
          {"start_step", text(plan.start)},
          {"beta1", text(plan.beta1)},
          {"beta2", text(plan.beta2)},
          {"beta3", text(plan.beta3)},
          {"grafting_beta2", text(plan.beta2)},
          {"epsilon", text(plan.epsilon)},
          {"root_abs_epsilon", text(plan.epsilon)},
          {"root_rel_epsilon", "0"},
          {"root_tolerance", "1e-12"},
          {"root_iterations", "100"},
          {"weight_decay", text(plan.decay)},
          {"merge", "off"},
          {"root", root}};
}

std::vector<double> some_gradient(int64_t count, int t) {
  Stream stream(static_cast<uint64_t>(100 + t));
  std::vector<double> g(static_cast<size_t>(count));
  for (double& x : g) x = stream.uniform();
  return g;
}

template <class Real>
double worst_difference(const Dims& dims, const Plan& plan, const char* root) {
  constexpr int kSteps = 10;  // refreshes at 4, 6 and 9
  constexpr double kRate = 0.01;
  const int64_t count = num_elements(dims);
  const auto engine = make_cpu_engine();
  std::vector<double> p = some_gradient(count, 0);
  TestTensor<Real> tensor(
      make_rule("shampoo", options_of(plan, root), DTypeOf<Real>::value), dims,
      std::vector<Real>(p.begin(), p.end()));
  PlainShampoo plain(dims, plan);
  double worst = 0;
  for (int t = 1; t <= kSteps; ++t) {
    const std::vector<double> g = some_gradient(count, t);
    tensor.step(*engine, std::vector<Real>(g.begin(), g.end()), kRate);
    const std::vector<double> d = plain.direction(g);
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] -= kRate * (plan.decay * p[i] + d[i]);
      worst = std::max(
          worst, std::fabs(static_cast<double>(tensor.weights[i]) - p[i]));
    }
  }
  return worst;
}

constexpr Plan kPlan = {.period = 3, .start = 4};

TEST(ShampooOracle, AgreesOverSeveralRefreshes) {
  for (const Dims& dims : {Dims{5, 3}, Dims{3, 5}, Dims{7}, Dims{3, 4, 2}}) {
    for (const char* root : {"eigen", "newton", "higher"}) {
      EXPECT_LT(worst_difference<double>(dims, kPlan, root), 1e-11)
          << to_string(dims) << " " << root;
      EXPECT_LT(worst_difference<float>(dims, kPlan, root), 2e-6)
          << to_string(dims) << " " << root;
    }
  }
}

TEST(ShampooOracle, AgreesWhenItLooksAhead) {
  Plan plan = kPlan;
  plan.beta3 = 0.7;
  EXPECT_LT(worst_difference<double>({5, 3}, plan, "eigen"), 1e-11);
}

// Each block is an independent tensor.
TEST(ShampooOracle, AgreesBlockByBlock) {
  const Dims dims = {5, 3};
  const auto engine = make_cpu_engine();
  RuleOptions options = options_of(kPlan, "eigen");
  options["max_preconditioner_dim"] = "2";
  std::vector<double> p = some_gradient(15, 0);
  TestTensor<double> tensor(make_rule("shampoo", options, DType::kFp64), dims,
                            p);
  std::vector<PlainShampoo> blocks;
  for (int64_t r = 0; r < 5; r += 2)
    for (int64_t c = 0; c < 3; c += 2)
      blocks.emplace_back(
          Dims{std::min<int64_t>(2, 5 - r), std::min<int64_t>(2, 3 - c)},
          kPlan);
  for (int t = 1; t <= 10; ++t) {
    const std::vector<double> g = some_gradient(15, t);
    tensor.step(*engine, g, 0.01);
    size_t at = 0;
    for (size_t r = 0; r < 5; r += 2)
      for (size_t c = 0; c < 3; c += 2) {
        std::vector<size_t> places;
        for (size_t i = r; i < std::min<size_t>(r + 2, 5); ++i)
          for (size_t j = c; j < std::min<size_t>(c + 2, 3); ++j)
            places.push_back(3 * i + j);
        std::vector<double> part;
        for (size_t place : places) part.push_back(g[place]);
        const std::vector<double> d = blocks[at++].direction(part);
        for (size_t k = 0; k < places.size(); ++k)
          p[places[k]] -= 0.01 * (kPlan.decay * p[places[k]] + d[k]);
      }
    for (size_t i = 0; i < p.size(); ++i)
      EXPECT_NEAR(tensor.weights[i], p[i], 1e-11) << "step " << t;
  }
}

}  // namespace
}  // namespace canzona::rules::rule_oracle_test

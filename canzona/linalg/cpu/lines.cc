// Norms and factors of lines on a CPU. Sums over lines are added in order.
#include "canzona/linalg/lines.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "canzona/linalg/cpu/cpu_engine.h"
#include "canzona/linalg/cpu/products.h"
#include "canzona/linalg/cpu/reductions.h"

namespace canzona::linalg {
namespace {

template <class Real>
double total_of(ConstView<Real> norms) {
  return std::sqrt(sum_of_squares(norms.data, norms.cols));
}

double root_of(double moment, const LineFactors& how) {
  return how.clamp ? std::sqrt(std::max(moment, how.epsilon))
                   : std::sqrt(moment) + how.epsilon;
}

// Returns 0 for a line without length, which stays as it is.
double quotient(double a, double b) { return b == 0 ? 0 : a / b; }

// Squares of finite numbers may leave the range; a moment never does, because
// an infinite one would stay so for ever.
template <class Real>
Real moved(Real moment, double value, const LineFactors& how) {
  const double sum = how.keep * static_cast<double>(moment) + how.add * value;
  return static_cast<Real>(
      std::min(sum, static_cast<double>(std::numeric_limits<Real>::max())));
}

// The views of one matrix; `moments` and `other` may be null.
template <class Real>
struct LinesOfOne {
  View<Real> factors;
  ConstView<Real> norms;
  View<Real> moments;
  ConstView<Real> other;
  const LineFactors& how;

  double norm(int64_t i) const {
    const double own = norms.data[i];
    return how.first ? own : own * static_cast<double>(factors.data[i]);
  }
  double total() const {
    double sum = 0;
    for (int64_t i = 0; i < norms.cols; ++i) sum += norm(i) * norm(i);
    return std::sqrt(sum);
  }
  void multiply(int64_t i, double f) const {
    Real& factor = factors.data[i];
    factor = static_cast<Real>(how.first ? f : static_cast<double>(factor) * f);
  }
  void multiply_all(double f) const {
    for (int64_t i = 0; i < factors.cols; ++i) multiply(i, f);
  }

  double whole() const {
    const double own = total();
    const double target = other.data != nullptr ? total_of(other) : how.target;
    if (how.zero_below && own < how.floor) return 0;
    return quotient(target, std::max(own, how.floor));
  }
  double moment() const {
    const double size = total_of(other);
    Real& v = moments.data[0];
    v = moved(v, size * size, how);
    return quotient(total_of(norms), root_of(static_cast<double>(v), how));
  }
  void even() const {
    const double each = total() / std::sqrt(static_cast<double>(norms.cols));
    for (int64_t i = 0; i < norms.cols; ++i)
      multiply(i, quotient(each, std::max(norm(i), how.floor)));
  }
  void by_moments() const {
    double squares = 0;
    for (int64_t i = 0; i < norms.cols; ++i) {
      const double r = norm(i);
      Real& v = moments.data[i];
      v = moved(v, r * r / how.length, how);
      const double e = quotient(r, root_of(static_cast<double>(v), how));
      squares += e * e;
    }
    const double f = quotient(total(), std::max(std::sqrt(squares), how.floor));
    for (int64_t i = 0; i < norms.cols; ++i)
      multiply(i,
               quotient(f, root_of(static_cast<double>(moments.data[i]), how)));
  }

  void run() const {
    switch (how.kind) {
      case LineFactors::Kind::kEven:
        return even();
      case LineFactors::Kind::kWhole:
        return multiply_all(whole());
      case LineFactors::Kind::kMoments:
        return by_moments();
      case LineFactors::Kind::kMoment:
        return multiply_all(moment());
    }
  }
};

}  // namespace

void CpuEngine::line_norms(Matrices norms, ConstMatrices a, Lines lines) {
  const bool rows = lines == Lines::kRows;
  CANZONA_CHECK_EQ(norms.cols, rows ? a.rows : a.cols, "norms of lines");
  for_each_matrix(
      [rows]<class Real>(View<Real> to, ConstView<Real> one, int64_t) {
        if (rows) {
          for (int64_t i = 0; i < one.rows; ++i)
            to.data[i] = static_cast<Real>(
                std::sqrt(linalg::sum_of_squares(one.row(i), one.cols)));
          return;
        }
        dot_columns(to.data, one, one);
        for (int64_t j = 0; j < one.cols; ++j)
          to.data[j] = std::sqrt(to.data[j]);
      },
      norms, a);
}

void CpuEngine::line_factors(Matrices factors, ConstMatrices norms,
                             const LineFactors& how, Matrices moments,
                             ConstMatrices other) {
  CANZONA_CHECK_EQ(factors.cols, norms.cols, "factors of lines");
  for_each_matrix(
      [&]<class Real>(View<Real> to, ConstView<Real> from, int64_t k) {
        View<Real> v;
        ConstView<Real> more;
        if (moments.data != nullptr) v = view_of<Real>(moments.at(k));
        if (other.data != nullptr) more = view_of<Real>(other.at(k));
        LinesOfOne<Real>{to, from, v, more, how}.run();
      },
      factors, norms);
}

void CpuEngine::scale_rows(Matrices to, ConstMatrices from,
                           ConstMatrices factors) {
  check_same_shape(to, from);
  CANZONA_CHECK_EQ(factors.cols, to.rows, "factors");
  for_each_matrix(
      [](auto target, auto source, auto factor, int64_t) {
        for (int64_t i = 0; i < target.rows; ++i)
          for (int64_t j = 0; j < target.cols; ++j)
            target.row(i)[j] = source.row(i)[j] * factor.data[i];
      },
      to, from, factors);
}

void CpuEngine::row_sums(const RowSums& sums, ConstMatrices update,
                         ConstMatrices weights) {
  check_same_shape(update, weights);
  for_each_matrix(
      [](auto o_norms, auto p_norms, auto dots, auto o, auto p, int64_t) {
        for (int64_t i = 0; i < o.rows; ++i) {
          o_norms.data[i] = std::sqrt(linalg::sum_of_squares(o.row(i), o.cols));
          p_norms.data[i] = std::sqrt(linalg::sum_of_squares(p.row(i), p.cols));
          dots.data[i] = dot(o.row(i), p.row(i), o.cols);
        }
      },
      sums.update, sums.weights, sums.dots, update, weights);
}

void CpuEngine::moved_factors(Matrices to, const RowSums& sums,
                              ConstMatrices factors, const Apply& apply,
                              double target, double floor) {
  const double keep = apply.keep_before * apply.keep_after;
  const double step = apply.step * apply.keep_after;
  for_each_matrix(
      [=]<class Real>(View<Real> out, ConstView<Real> f, View<Real> o,
                      View<Real> p, View<Real> dots, int64_t) {
        double moved = 0, before = 0;
        for (int64_t i = 0; i < f.cols; ++i) {
          const double a = keep * p.data[i];
          const double s = step * f.data[i];
          const double b = s * o.data[i];
          moved += a * a - 2 * keep * s * dots.data[i] + b * b;
          before += static_cast<double>(p.data[i]) * p.data[i];
        }
        const double norm = std::sqrt(std::max(moved, 0.0));
        const double wanted = target == 0 ? std::sqrt(before) : target;
        const double g =
            norm < floor ? 0 : quotient(wanted, std::max(norm, floor));
        std::fill_n(out.data, out.cols, static_cast<Real>(g));
      },
      to, factors, sums.update, sums.weights, sums.dots);
}

}  // namespace canzona::linalg

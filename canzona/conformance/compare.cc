#include "canzona/conformance/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "canzona/base/check.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

}  // namespace

double deviation(std::span<const double> got,
                 std::span<const double> expected) {
  CANZONA_CHECK_EQ(got.size(), expected.size(), "elements to compare");
  double largest = 0;
  double furthest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double distance = std::abs(got[i] - expected[i]);
    if (std::isnan(distance)) return kNotANumber;
    furthest = std::max(furthest, distance);
    largest = std::max(largest, std::abs(expected[i]));
  }
  if (largest == 0) return furthest == 0 ? 0 : kInfinite;
  return furthest / largest;
}

void match_column_signs(std::vector<double>& got,
                        std::span<const double> expected, int64_t cols) {
  CANZONA_CHECK_EQ(got.size(), expected.size(), "elements of a basis");
  const auto stride = static_cast<size_t>(cols);
  for (size_t j = 0; j < stride; ++j) {
    double dot = 0;
    for (size_t i = j; i < got.size(); i += stride) dot += got[i] * expected[i];
    if (dot >= 0) continue;
    for (size_t i = j; i < got.size(); i += stride) got[i] = -got[i];
  }
}

std::optional<double> tolerance_of(const Fixture& fixture,
                                   const TensorName& name) {
  std::string key = cat(name.what, ".", name.step);
  while (true) {
    const auto found = fixture.tolerance.find(key);
    if (found != fixture.tolerance.end()) return found->second;
    const size_t dot = key.rfind('.');
    if (dot == std::string::npos) break;
    key.resize(dot);
  }
  fixture.refuse(cat("no tolerance for tensor ", quoted(to_string(name))));
}

double widened(double tolerance, double slack) {
  constexpr double kWidest = 0.75;
  return std::max(tolerance, std::min(tolerance * slack, kWidest));
}

double Finding::ratio() const {
  if (deviation == 0) return 0;
  return tolerance == 0 ? kInfinite : deviation / tolerance;
}

void Findings::add(const std::string& tensor, double deviation,
                   double tolerance) {
  const Finding finding{tensor, deviation, tolerance};
  const double before = worst_.ratio();
  const double now = finding.ratio();
  const bool worse = std::isnan(now) ? !std::isnan(before) : now > before;
  if (count_++ == 0 || worse) worst_ = finding;
}

void Findings::fail(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
}

bool Findings::passed() const {
  return failure_.empty() && count_ > 0 && worst_.passed();
}

std::string Findings::reason() const {
  if (!failure_.empty()) return failure_;
  if (count_ == 0) return "nothing was compared";
  if (worst_.passed()) return "";
  return cat(worst_.tensor, " deviates by ", short_number(worst_.deviation),
             ", ", short_number(worst_.tolerance), " is allowed");
}

namespace {

Square product(const Square& a, const Square& b, int64_t n) {
  Square c(a.size(), 0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < n; ++k) {
      const double factor = a[static_cast<size_t>(i * n + k)];
      for (int64_t j = 0; j < n; ++j)
        c[static_cast<size_t>(i * n + j)] +=
            factor * b[static_cast<size_t>(k * n + j)];
    }
  return c;
}

Square transposed(const Square& a, int64_t n) {
  Square t(a.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      t[static_cast<size_t>(j * n + i)] = a[static_cast<size_t>(i * n + j)];
  return t;
}

Square rotated(const Square& q, const Square& f, int64_t n) {
  return product(transposed(q, n), product(f, q, n), n);
}

double distance_from_identity(const Square& a, int64_t n) {
  double furthest = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const double off =
          std::abs(a[static_cast<size_t>(i * n + j)] - (i == j ? 1 : 0));
      if (std::isnan(off)) return std::numeric_limits<double>::quiet_NaN();
      furthest = std::max(furthest, off);
    }
  return furthest;
}

}  // namespace

double orthogonality_error(const Square& q, int64_t n) {
  return distance_from_identity(product(transposed(q, n), q, n), n);
}

double off_diagonal_share(const Square& q, const Square& f, int64_t n) {
  const Square inner = rotated(q, f, n);
  double largest = 0;
  for (double x : f) largest = std::max(largest, std::abs(x));
  if (largest == 0) return 0;
  double off = 0, whole = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<size_t>(i * n + j);
      const double entry = inner[at] / largest;  // squares stay in range
      if (i != j) off += entry * entry;
      whole += (f[at] / largest) * (f[at] / largest);
    }
  return std::sqrt(off / whole);
}

std::vector<double> eigenvalue_estimates(const Square& q, const Square& f,
                                         int64_t n) {
  const Square inner = rotated(q, f, n);
  std::vector<double> diagonal;
  for (int64_t i = 0; i < n; ++i)
    diagonal.push_back(inner[static_cast<size_t>(i * n + i)]);
  return diagonal;
}

double root_residual(const Square& a, const Square& x, int64_t n, int64_t p,
                     int64_t q) {
  Square power = a;
  for (int64_t i = 1; i < q; ++i) power = product(power, a, n);
  for (int64_t i = 0; i < p; ++i) power = product(power, x, n);
  return distance_from_identity(power, n);
}

}  // namespace canzona

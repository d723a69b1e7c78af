#include "canzona/conformance/invariants.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace canzona {
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

// Matrices for tests of rules, and plain fp64 arithmetic on them that shares no
// code with the code under test.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace canzona::rules {

// Row-major, fp64.
struct PlainMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  PlainMatrix() = default;
  PlainMatrix(int64_t m, int64_t n)
      : rows(m), cols(n), values(static_cast<size_t>(m * n)) {}
  double& operator()(int64_t i, int64_t j) {
    return values[static_cast<size_t>(i * cols + j)];
  }
  double operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * cols + j)];
  }
};

inline PlainMatrix transposed(const PlainMatrix& a) {
  PlainMatrix t(a.cols, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.cols; ++j) t(j, i) = a(i, j);
  return t;
}

inline PlainMatrix operator*(const PlainMatrix& a, const PlainMatrix& b) {
  PlainMatrix c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.cols; ++k) {
      const double factor = a(i, k);
      for (int64_t j = 0; j < b.cols; ++j) c(i, j) += factor * b(k, j);
    }
  return c;
}

inline double frobenius(const PlainMatrix& a) {
  double largest = 0;
  for (double x : a.values) largest = std::max(largest, std::fabs(x));
  if (largest == 0) return 0;
  double sum = 0;
  for (double x : a.values) sum += (x / largest) * (x / largest);
  return largest * std::sqrt(sum);
}

inline double distance(const PlainMatrix& a, const PlainMatrix& b) {
  PlainMatrix d = a;
  for (size_t i = 0; i < d.values.size(); ++i) d.values[i] -= b.values[i];
  return frobenius(d);
}

// A stream of numbers that is the same on every platform.
class Stream {
 public:
  explicit Stream(uint64_t seed) : state_(seed) {}
  uint64_t bits() {
    state_ += 0x9E3779B97F4A7C15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  // In [-1, 1), exact in fp32.
  double uniform() {
    return (static_cast<double>(bits() >> 40) - 0x1p23) / 0x1p23;
  }
  double unit() { return (uniform() + 1) / 2; }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - unit()));
    return radius * std::cos(2 * M_PI * unit());
  }

 private:
  uint64_t state_;
};

inline PlainMatrix gaussian(int64_t m, int64_t n, Stream& stream) {
  PlainMatrix a(m, n);
  for (double& x : a.values) x = stream.normal();
  return a;
}

// Orthonormal columns by Gram–Schmidt, applied twice.
inline PlainMatrix orthonormal(int64_t m, int64_t n, Stream& stream) {
  PlainMatrix q = gaussian(m, n, stream);
  for (int64_t j = 0; j < n; ++j) {
    for (int round = 0; round < 2; ++round)
      for (int64_t k = 0; k < j; ++k) {
        double dot = 0;
        for (int64_t i = 0; i < m; ++i) dot += q(i, j) * q(i, k);
        for (int64_t i = 0; i < m; ++i) q(i, j) -= dot * q(i, k);
      }
    double norm = 0;
    for (int64_t i = 0; i < m; ++i) norm += q(i, j) * q(i, j);
    for (int64_t i = 0; i < m; ++i) q(i, j) /= std::sqrt(norm);
  }
  return q;
}

// U·diag(spectrum)·Vᵀ, m x n with m <= n.
inline PlainMatrix with_spectrum(const std::vector<double>& spectrum, int64_t n,
                                 Stream& stream) {
  const auto m = static_cast<int64_t>(spectrum.size());
  PlainMatrix u = orthonormal(m, m, stream);
  const PlainMatrix v = orthonormal(n, m, stream);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < m; ++j) u(i, j) *= spectrum[static_cast<size_t>(j)];
  return u * transposed(v);
}

// The largest singular value, by power iteration on the smaller Gram matrix.
inline double largest_singular_value(const PlainMatrix& a) {
  const PlainMatrix wide = a.rows <= a.cols ? a : transposed(a);
  const PlainMatrix gram = wide * transposed(wide);
  Stream stream(99);
  PlainMatrix x = gaussian(gram.rows, 1, stream);
  double value = 0;
  for (int round = 0; round < 100; ++round) {
    PlainMatrix y = gram * x;
    value = frobenius(y) / frobenius(x);
    if (!(value > 0)) return std::sqrt(value);
    const double norm = frobenius(y);
    for (double& entry : y.values) entry /= norm;
    x = y;
  }
  return std::sqrt(value);
}

}  // namespace canzona::rules

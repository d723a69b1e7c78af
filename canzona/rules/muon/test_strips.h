// Newton–Schulz with strips, written out in plain loops that share no code with
// the code under test.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "canzona/linalg/matrix.h"
#include "canzona/rules/muon/facts.h"
#include "canzona/rules/test_matrices.h"

namespace canzona::rules {

template <class Real>
inline constexpr DType kTypeOf = sizeof(Real) == 8 ? DType::kFp64
                                                   : DType::kFp32;

template <class Real>
std::vector<Real> random_numbers(int64_t count, uint64_t seed) {
  Stream s(seed);
  std::vector<Real> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<Real>(s.normal()));
  return values;
}

// R = XXᵀ by strips: each is one sum, then halves of the strips are added, in
// Real.
template <class Real>
class PlainStrips {
 public:
  PlainStrips(int64_t m, int64_t n, int strips) : m_(m), n_(n) {
    // The multiples of 64 nearest to equal parts, found by exhaustive search.
    borders_.push_back(0);
    for (int i = 1; i < strips; ++i) {
      const double exact = static_cast<double>(n) * i / strips;
      int64_t best = 0;
      for (int64_t b = 0; b <= n; b += 64)
        if (std::fabs(double(b) - exact) <= std::fabs(double(best) - exact))
          best = b;
      borders_.push_back(best);
    }
    borders_.push_back(n);
  }

  std::vector<Real> gram(const std::vector<Real>& x) const {
    return gram(x, 0, borders_.size() - 1);
  }
  double squares(const std::vector<Real>& x) const {
    return squares(x, 0, borders_.size() - 1);
  }

 private:
  std::vector<Real> gram(const std::vector<Real>& x, size_t begin,
                         size_t end) const {
    if (end - begin > 1) {
      const size_t middle = (begin + end) / 2;
      std::vector<Real> sum = gram(x, begin, middle);
      const std::vector<Real> right = gram(x, middle, end);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
      return sum;
    }
    std::vector<Real> r(static_cast<size_t>(m_ * m_));
    for (int64_t i = 0; i < m_; ++i)
      for (int64_t j = 0; j < m_; ++j) {
        Real sum = 0;
        for (int64_t k = borders_[begin]; k < borders_[end]; ++k)
          sum += x[size_t(i * n_ + k)] * x[size_t(j * n_ + k)];
        r[size_t(i * m_ + j)] = sum;
      }
    return r;
  }
  double squares(const std::vector<Real>& x, size_t begin, size_t end) const {
    if (end - begin > 1) {
      const size_t middle = (begin + end) / 2;
      return squares(x, begin, middle) + squares(x, middle, end);
    }
    double sum = 0;
    for (int64_t i = 0; i < m_; ++i)
      for (int64_t k = borders_[begin]; k < borders_[end]; ++k)
        sum += double(x[size_t(i * n_ + k)]) * double(x[size_t(i * n_ + k)]);
    return sum;
  }

  int64_t m_, n_;
  std::vector<int64_t> borders_;
};

template <class Real>
std::vector<Real> plain_product(const std::vector<Real>& a,
                                const std::vector<Real>& b, int64_t m,
                                int64_t n) {
  std::vector<Real> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t k = 0; k < m; ++k)
      for (int64_t j = 0; j < n; ++j)
        c[size_t(i * n + j)] += a[size_t(i * m + k)] * b[size_t(k * n + j)];
  return c;
}

// A wide matrix, step by step: X <- aX + bRX + cR²X.
template <class Real>
std::vector<Real> plain_steps(std::vector<Real> x, int64_t m, int64_t n,
                              int strips,
                              const std::vector<Coefficients>& steps) {
  const PlainStrips<Real> sums(m, n, strips);
  const double norm = std::sqrt(sums.squares(x));
  if (norm > 0)
    for (Real& v : x) v = static_cast<Real>(v / norm);
  for (const auto& [a, b, c] : steps) {
    const std::vector<Real> r = sums.gram(x);
    const std::vector<Real> rx = plain_product(r, x, m, n);
    const std::vector<Real> rrx = plain_product(r, rx, m, n);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<Real>(a * x[i] + b * rx[i] + c * rrx[i]);
  }
  return x;
}

template <class Real>
std::vector<Real> turned(const std::vector<Real>& a, int64_t rows,
                         int64_t cols) {
  std::vector<Real> t(a.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      t[size_t(j * rows + i)] = a[size_t(i * cols + j)];
  return t;
}

template <class Real>
double relative_distance(const std::vector<Real>& a,
                         const std::vector<Real>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    size += std::pow(double(b[i]), 2);
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

}  // namespace canzona::rules

// Matrices that Newton–Schulz in short numbers finds hard: eighteen families,
// nearly of rank one, badly scaled, sparse, with gaps.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "canzona/rules/test_matrices.h"

namespace canzona {

struct StressCase {
  std::string name;
  PlainMatrix matrix;
};

inline PlainMatrix outer(const PlainMatrix& column, const PlainMatrix& row) {
  return column * row;
}

inline PlainMatrix plus_noise(PlainMatrix a, double size, Stream& s) {
  for (double& x : a.values) x += size * s.normal();
  return a;
}

// m a multiple of 4, m <= n.
inline std::vector<StressCase> stress_cases(int64_t m, int64_t n,
                                            uint64_t seed) {
  Stream s(seed);
  std::vector<StressCase> cases;
  const auto add = [&](const char* name, PlainMatrix a) {
    const double scale = std::pow(10, -12 + 15 * s.unit());
    for (double& x : a.values) x *= scale;
    cases.push_back({name, std::move(a)});
  };
  const auto normal = [&](int64_t rows, int64_t cols) {
    return gaussian(rows, cols, s);
  };
  const auto scaled_rows = [&](PlainMatrix a, double spread) {
    for (int64_t i = 0; i < a.rows; ++i) {
      const double factor = std::exp(spread * s.normal());
      for (int64_t j = 0; j < a.cols; ++j) a(i, j) *= factor;
    }
    return a;
  };
  PlainMatrix first(m, 1);
  first(0, 0) = 1;
  add("rank one on a coordinate",
      plus_noise(outer(first, normal(1, n)), 1e-4, s));
  add("rank one, dense",
      plus_noise(outer(normal(m, 1), normal(1, n)), 1e-3, s));
  add("rank one, exact", outer(normal(m, 1), normal(1, n)));
  PlainMatrix ones(m, n);
  std::fill(ones.values.begin(), ones.values.end(), 1.0);
  add("ones", plus_noise(ones, 1e-3, s));
  add("rank four and noise", plus_noise(normal(m, 4) * normal(4, n), 1e-2, s));
  const int64_t rank = 2 + static_cast<int64_t>(s.unit() * double(m - 2));
  add("low rank, exact", normal(m, rank) * normal(rank, n));
  PlainMatrix rows = normal(m, n);
  for (int64_t i = 0; i < m; ++i)
    if (s.unit() < 0.7)
      for (int64_t j = 0; j < n; ++j) rows(i, j) = 0;
  add("zero rows", rows);
  PlainMatrix cols = normal(m, n);
  for (int64_t j = 0; j < n; ++j)
    if (s.unit() < 0.9)
      for (int64_t i = 0; i < m; ++i) cols(i, j) = 0;
  add("zero columns", cols);
  PlainMatrix twice = normal(m, n);
  for (int64_t i = 1; i < m; i += 2)
    for (int64_t j = 0; j < n; ++j) twice(i, j) = twice(i - 1, j);
  add("duplicated rows", twice);
  add("row scales", scaled_rows(normal(m, n), 3));
  add("row and column scales",
      transposed(scaled_rows(transposed(scaled_rows(normal(m, n), 2)), 2)));
  PlainMatrix cauchy(m, n);
  for (double& x : cauchy.values) x = std::tan(M_PI * (s.unit() - 0.5));
  add("heavy tail", cauchy);
  PlainMatrix sparse = normal(m, n);
  for (double& x : sparse.values)
    if (s.unit() >= 0.01) x = 0;
  add("sparse", sparse);
  PlainMatrix blocks(m, n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      if (i / (m / 4) == j / (n / 4))
        blocks(i, j) = std::pow(10.0, -double(i / (m / 4)));
  add("blocks", plus_noise(blocks, 1e-5, s));
  std::vector<double> falling, levels, powers;
  const double low = std::pow(10, -1 - 4 * s.unit());
  for (int64_t i = 0; i < m; ++i) {
    falling.push_back(std::pow(10, -8.0 * double(i) / double(m - 1)));
    levels.push_back(i < m / 2 ? 1.0 : low);
    powers.push_back(std::pow(double(i + 1), -1.5));
  }
  add("falling to 1e-8", with_spectrum(falling, n, s));
  add("two levels", with_spectrum(levels, n, s));
  PlainMatrix eye(m, n), diagonal(m, n);
  for (int64_t i = 0; i < m; ++i) {
    eye(i, i) = 1;
    diagonal(i, i) = powers[static_cast<size_t>(i)];
  }
  add("identity", eye);
  add("falling diagonal", diagonal);
  return cases;
}

}  // namespace canzona

// Matrices that are hard for Newton–Schulz in low precision: eighteen families,
// nearly of rank one, badly scaled, sparse, with gaps; and small ones of rank
// one or with a condition number of 1e6 and more, with their expected results.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "canzona/rules/muon/facts.h"
#include "canzona/rules/test_matrices.h"

namespace canzona::rules {

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

// Requires m <= n and m a multiple of 4.
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

inline constexpr std::pair<int64_t, int64_t> kSmallStressShapes[] = {
    {4, 6}, {8, 8}, {16, 24}, {31, 40}, {32, 96}, {64, 64}, {64, 192}};

// Requires m <= n. The values are exact in fp32.
inline std::vector<StressCase> small_stress_cases(int64_t m, int64_t n,
                                                  uint64_t seed) {
  Stream s(seed);
  std::vector<StressCase> cases;
  const auto add = [&](std::string name, PlainMatrix a) {
    for (double& x : a.values) x = static_cast<float>(x);
    cases.push_back({std::move(name), std::move(a)});
  };
  const auto few_bits = [&](int64_t rows, int64_t cols) {
    PlainMatrix a = gaussian(rows, cols, s);
    for (double& x : a.values) x = std::round(4 * x) / 4 + 0.125;
    return a;
  };
  add("rank one", outer(gaussian(m, 1, s), gaussian(1, n, s)));
  add("rank one, exact in bf16", outer(few_bits(m, 1), few_bits(1, n)));
  add("rank one and noise",
      plus_noise(outer(gaussian(m, 1, s), gaussian(1, n, s)), 1e-6, s));
  for (const auto& [text, low] :
       {std::pair{"1e-6", 1e-6}, {"1e-9", 1e-9}, {"1e-12", 1e-12}}) {
    std::vector<double> falling, gap, half, last;
    for (int64_t i = 0; i < m; ++i) {
      falling.push_back(std::pow(low, double(i) / double(m - 1)));
      gap.push_back(i == 0 ? 1 : low);
      half.push_back(i < m / 2 ? 1 : low);
      last.push_back(i + 1 < m ? 1 : low);
    }
    add(std::string("falling to ") + text, with_spectrum(falling, n, s));
    add(std::string("all but one at ") + text, with_spectrum(gap, n, s));
    add(std::string("half at ") + text, with_spectrum(half, n, s));
    add(std::string("one at ") + text, with_spectrum(last, n, s));
  }
  return cases;
}

// The plain iteration in fp64: X <- aX + bXXᵀX + c(XXᵀ)²X.
inline PlainMatrix plain_iteration(PlainMatrix x,
                                   const std::vector<Coefficients>& steps,
                                   double norm_factor) {
  const double norm = norm_factor * frobenius(x);
  for (double& value : x.values) value /= norm;
  for (const auto& [a, b, c] : steps) {
    const PlainMatrix r = x * transposed(x);
    const PlainMatrix rx = r * x, rrx = r * rx;
    for (size_t i = 0; i < x.values.size(); ++i)
      x.values[i] = a * x.values[i] + b * rx.values[i] + c * rrx.values[i];
  }
  return x;
}

// Returns the tolerance for |O - O64| / |O64|. Rounding adds to directions that
// the matrix does not have about one unit in the last place of the largest one,
// and the steps multiply that by their slope at zero. Both constants are two to
// four times the measured error; the first is that of the Gram form with `cans`
// in fp32.
inline double stress_tolerance(const std::vector<Coefficients>& steps,
                               const std::string& precision) {
  double slope = 1;
  for (const Coefficients& k : steps) slope *= k.a;
  const double unit = precision == "fp32"   ? 0x1p-24
                      : precision == "fp16" ? 0x1p-11
                                            : 0x1p-8;
  return 4e-3 + 4 * slope * unit;
}

}  // namespace canzona::rules

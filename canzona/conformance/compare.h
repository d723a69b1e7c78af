// Compares tensors with the results of a reference.
//
//   Findings findings;
//   findings.add("param.3", deviation(got, expected), 1e-12);
//   bool passed = findings.passed();
//
// A deviation that is not a number never passes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "canzona/conformance/fixture.h"

namespace canzona {

// Returns max|got - expected| / max|expected|. If everything expected is zero,
// returns 0 if everything got is zero, otherwise infinity. Returns NaN if any
// number is NaN.
double deviation(std::span<const double> got, std::span<const double> expected);

// Flips columns of `got` that point away from the expected ones, since the sign
// of an eigenvector is arbitrary. `cols` is the number of columns.
void match_column_signs(std::vector<double>& got,
                        std::span<const double> expected, int64_t cols);

// Returns the tolerance of the longest key that equals the name without its
// block, or a prefix of it; nothing if the tensor is not to be compared. Throws
// UsageError if no key fits.
std::optional<double> tolerance_of(const Fixture& fixture,
                                   const TensorName& name);

// Returns the tolerance widened by `slack`, but never so far that a result of
// zeros, which deviates by 1, would pass.
double widened(double tolerance, double slack);

struct Finding {
  std::string tensor;  // "param.3", or whatever else was checked
  double deviation = 0;
  double tolerance = 0;

  bool passed() const { return deviation <= tolerance; }
  double ratio() const;  // of deviation to tolerance
};

// Keeps the worst of all findings. No findings at all is a failure, because
// nothing was checked.
class Findings {
 public:
  void add(const std::string& tensor, double deviation, double tolerance);
  // Records a failure without a measure: a tensor that is missing, bits that
  // differ.
  void fail(const std::string& reason);

  bool passed() const;
  bool empty() const { return count_ == 0; }
  const Finding& worst() const { return worst_; }
  // The reason for the failure; empty if passed.
  std::string reason() const;

 private:
  int64_t count_ = 0;
  Finding worst_;
  std::string failure_;  // the first
};

// Measures of the quality of a decomposition, whichever of the many correct
// ones it is. Matrices are n x n, row-major; plain loops in fp64.

using Square = std::vector<double>;

// max|QᵀQ - I|
double orthogonality_error(const Square& q, int64_t n);
// |QᵀFQ without its diagonal| / |F|, Frobenius norms; 0 if F is zero.
double off_diagonal_share(const Square& q, const Square& f, int64_t n);
// The diagonal of QᵀFQ.
std::vector<double> eigenvalue_estimates(const Square& q, const Square& f,
                                         int64_t n);
// max|A^q·X^p - I|, for an X that should be A^(-q/p).
double root_residual(const Square& a, const Square& x, int64_t n, int64_t p,
                     int64_t q);

}  // namespace canzona

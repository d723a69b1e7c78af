// Compares tensors with what a reference gave.
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

// max|got - expected| / max|expected|. If all that is expected is zero, this is
// 0 if all that was got is, else infinite. Not a number if one of them is not.
double deviation(std::span<const double> got, std::span<const double> expected);

// Turns the columns of `got`, `cols` of them, so that none points away from the
// expected one: the sign of an eigenvector means nothing.
void match_column_signs(std::vector<double>& got,
                        std::span<const double> expected, int64_t cols);

// The tolerance of the longest key that is the name, less its block, or a
// leading part of it. None: the tensor is not to be compared. UsageError if no
// key fits.
std::optional<double> tolerance_of(const Fixture& fixture,
                                   const TensorName& name);

// The tolerance widened by `slack`, but never so far that a result of zeros,
// which deviates by 1, would do.
double widened(double tolerance, double slack);

struct Finding {
  std::string tensor;  // "param.3", or what else was checked
  double deviation = 0;
  double tolerance = 0;

  bool passed() const { return deviation <= tolerance; }
  double ratio() const;  // of deviation to tolerance
};

// The worst of all findings. None at all is a failure: nothing was checked.
class Findings {
 public:
  void add(const std::string& tensor, double deviation, double tolerance);
  // Notes a failure that has no measure: a tensor that is missing, bits that
  // differ.
  void fail(const std::string& reason);

  bool passed() const;
  bool empty() const { return count_ == 0; }
  const Finding& worst() const { return worst_; }
  // The reason of the failure; empty if passed.
  std::string reason() const;

 private:
  int64_t count_ = 0;
  Finding worst_;
  std::string failure_;  // the first
};

// These measure how good a decomposition is, whichever of the many right ones
// it is. Square matrices of n x n numbers, row by row; plain loops in fp64.

using Square = std::vector<double>;

// max|QᵀQ - I|
double orthogonality_error(const Square& q, int64_t n);
// |QᵀFQ less its diagonal| / |F|, Frobenius; 0 if F is zero.
double off_diagonal_share(const Square& q, const Square& f, int64_t n);
// The diagonal of QᵀFQ.
std::vector<double> eigenvalue_estimates(const Square& q, const Square& f,
                                         int64_t n);
// max|A^q·X^p - I|, for an X that should be A to the minus q/p.
double root_residual(const Square& a, const Square& x, int64_t n, int64_t p,
                     int64_t q);

}  // namespace canzona

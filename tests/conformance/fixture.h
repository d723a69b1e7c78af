// A fixture, the inputs and outputs of a reference implementation of a rule,
// step by step, in one safetensors file, and how our results compare with it.
//
//   Fixture fixture = read_fixture_file("muon-keller-3x3-f64.safetensors");
//   const FixtureTensor& before = fixture.tensor("param.0");
//
// Names are [inject.][bB.]WHAT.T: WHAT is param, grad, momentum, …; T counts
// steps from 1 (param.0 is the start); bB is a block of a tensor that is cut;
// inject marks what replaces the rule's own decomposition. Pure functions have
// in.K and out_DTYPE[.rR].K instead.
//
// Files are untrusted: sizes, names and numbers are checked, and memory stays
// within a few times the file's size. UsageError names the file and what is
// wrong with it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_reader.h"
#include "canzona/base/rooms.h"

namespace canzona::tests {

inline constexpr int64_t kMaxFixtureBytes = 64 << 20;
inline constexpr int64_t kMaxFixtureTensors = 100'000;
inline constexpr int64_t kMaxFixtureSteps = 10'000;

struct FixtureTensor {
  std::vector<int64_t> dims;
  std::vector<double> values;     // fp32 widened
  std::vector<int64_t> integers;  // of a permutation; values are then empty
};

// A tensor's name, parsed.
struct TensorName {
  bool inject = false;
  int64_t block = -1;  // -1: the tensor is not cut
  std::string what;    // "factor_left"
  int64_t step = 0;    // or the number of a pure function's input
};
// Returns nothing if the name is not of that form.
std::optional<TensorName> parse_tensor_name(std::string_view name);
std::string to_string(const TensorName& name);

struct Fixture {
  std::string file;
  std::string rule;  // a name of the rules' table; or pure: ns, root, qkclip
  std::string preset;
  std::string dtype;  // f64, f32, bf16_ns; any text for pure functions
  bool injected = false;
  int64_t steps = 0;
  Json options;
  Json geometry;  // of qkclip: by number of the input
  std::map<std::string, std::optional<double>> tolerance;  // nothing: skip
  std::map<std::string, FixtureTensor> tensors;

  bool is_pure() const {
    return rule == "ns" || rule == "root" || rule == "qkclip";
  }
  // Throws UsageError if it is missing; find() returns null instead.
  const FixtureTensor& tensor(const std::string& name) const;
  const FixtureTensor* find(const std::string& name) const;
  [[noreturn]] void refuse(const std::string& problem) const;
};

Fixture read_fixture(std::string_view bytes, const std::string& file);
Fixture read_fixture_file(const std::string& path);

// Compares tensors with the results of a reference.
//
//   Findings findings;
//   findings.add("param.3", deviation(got, expected), 1e-12);
//   bool passed = findings.passed();
//
// A deviation that is not a number never passes.

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

}  // namespace canzona::tests

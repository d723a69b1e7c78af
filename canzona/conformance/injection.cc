#include "canzona/conformance/injection.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/check.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// Our own decomposition may be this much worse than the reference's, plus this
// many units of rounding.
constexpr double kWorse = 4;
constexpr double kBasisUnits = 400;
constexpr double kRootUnits = 2e5;

Square read_matrix(ConstMatrices from) {
  Square values;
  for (int64_t i = 0; i < from.rows; ++i)
    for (int64_t j = 0; j < from.cols; ++j) {
      const int64_t at = i * from.row_stride + j;
      values.push_back(from.dtype == DType::kFp64
                           ? from.as<double>()[at]
                           : static_cast<double>(from.as<float>()[at]));
    }
  return values;
}

void write_matrix(Matrices to, const std::vector<double>& values) {
  for (int64_t i = 0; i < to.rows; ++i)
    for (int64_t j = 0; j < to.cols; ++j) {
      const int64_t at = i * to.row_stride + j;
      const double value = values[static_cast<size_t>(i * to.cols + j)];
      if (to.dtype == DType::kFp64)
        to.as<double>()[at] = value;
      else
        to.as<float>()[at] = static_cast<float>(value);
    }
}

bool is_order(const std::vector<int64_t>& columns) {
  std::vector<bool> seen(columns.size());
  for (int64_t column : columns) {
    if (column < 0 || column >= std::ssize(columns)) return false;
    if (seen[static_cast<size_t>(column)]) return false;
    seen[static_cast<size_t>(column)] = true;
  }
  return true;
}

double frobenius(const Square& a) {
  double sum = 0;
  for (double x : a) sum += x * x;
  return std::sqrt(sum);
}

}  // namespace

Injection::Injection(const Fixture& fixture, const Rule& rule,
                     const StateNames& names, const TensorMemory& memory,
                     Findings& findings)
    : fixture_(fixture),
      names_(names),
      memory_(memory),
      findings_(findings),
      rounding_(rule.dtype() == DType::kFp64 ? 0x1p-52 : 0x1p-23) {
  if (rule.facts().name() == "shampoo")
    shampoo_.emplace(rule.facts().options());
}

void Injection::begin(int64_t step) {
  step_ = step;
  unused_.clear();
  for (const auto& [name, tensor] : fixture_.tensors) {
    const auto parsed = parse_tensor_name(name);
    if (parsed && parsed->inject && parsed->step == step) unused_.insert(name);
  }
}

void Injection::end() {
  if (!unused_.empty())
    findings_.fail(cat(*unused_.begin(), ": no such decomposition was made"));
}

std::string Injection::name(const FactorId& part, const char* kind) const {
  const int64_t block = names_.num_blocks() > 1 ? part.block : -1;
  return to_string(
      TensorName{true, block, cat(kind, names_.axis_name(part.axis)), step_});
}

const FixtureTensor* Injection::find(const std::string& name,
                                     int64_t elements) {
  const FixtureTensor* tensor = fixture_.find(name);
  unused_.erase(name);
  if (tensor == nullptr) {
    findings_.fail(cat("no ", name, ": the reference decomposed nothing"));
    return nullptr;
  }
  if (num_elements(tensor->dims) != elements)
    fixture_.refuse(cat("tensor ", quoted(name), " is ",
                        to_string(tensor->dims), ", expected ", elements,
                        " elements"));
  return tensor;
}

Square Injection::factor(const FactorId& part) const {
  const auto view =
      names_.find(part.block, cat("factor_", names_.axis_name(part.axis)));
  CANZONA_CHECK(view, "factor of axis ", part.axis);
  return gather(memory_, *view);
}

Square Injection::damped_factor(const FactorId& part, int64_t n) const {
  Square a = factor(part);
  const bool corrected = shampoo_->bias_correction && shampoo_->beta2 < 1 &&
                         !shampoo_->drop_weighting;
  const double weight =
      corrected ? 1 - std::pow(shampoo_->beta2, static_cast<double>(step_)) : 1;
  for (double& x : a) x /= weight;
  const RootOptions& root = shampoo_->root;
  if (shampoo_->trace_scaling) {
    double trace = 0;
    for (int64_t i = 0; i < n; ++i) trace += a[static_cast<size_t>(i * n + i)];
    for (double& x : a) x /= std::sqrt(std::max(trace, root.epsilon));
  }
  const double damping = std::max(
      root.method == RootMethod::kHigher ? root.abs_epsilon : root.epsilon,
      root.rel_epsilon * frobenius(a));
  for (int64_t i = 0; i < n; ++i) a[static_cast<size_t>(i * n + i)] += damping;
  return a;
}

void Injection::order(const FactorId& part, std::span<int64_t> columns) {
  const std::string wanted = name(part, "perm_");
  const FixtureTensor* theirs = find(wanted, std::ssize(columns));
  if (theirs == nullptr) return;
  if (!is_order(theirs->integers))
    fixture_.refuse(cat("tensor ", quoted(wanted), " is no permutation"));
  std::copy(theirs->integers.begin(), theirs->integers.end(), columns.begin());
}

void Injection::check_basis(const FactorId& part, const Square& own,
                            const Square& theirs, int64_t n) {
  const double limit = rounding_ * kBasisUnits;
  const std::string axis = cat("basis_", names_.axis_name(part.axis));
  findings_.add(cat("own ", axis, ".", step_, " orthogonality"),
                orthogonality_error(own, n),
                kWorse * orthogonality_error(theirs, n) + limit);
  const Square f = factor(part);
  findings_.add(cat("own ", axis, ".", step_, " diagonality"),
                off_diagonal_share(own, f, n),
                kWorse * off_diagonal_share(theirs, f, n) + limit);
}

bool Injection::basis(const FactorId& part, Matrices q, Matrices values) {
  const FixtureTensor* theirs = find(name(part, "basis_"), q.elements());
  if (theirs != nullptr) {
    check_basis(part, read_matrix(q), theirs->values, q.rows);
    write_matrix(q, theirs->values);
  }
  // References have eigenvalues even if nothing depends on them, and some rules
  // have none.
  const std::string eigenvalues = name(part, "eigval_");
  const std::string kept = cat("eigval_", names_.axis_name(part.axis));
  if (!names_.find(part.block, kept)) {
    unused_.erase(eigenvalues);
    return true;
  }
  if (const FixtureTensor* theirs_too = find(eigenvalues, values.elements()))
    write_matrix(values, theirs_too->values);
  return true;
}

bool Injection::inverse_root(const FactorId& part, Matrices x) {
  const FixtureTensor* theirs = find(name(part, "inv_root_"), x.elements());
  if (theirs == nullptr) return true;
  const int64_t n = x.rows;
  const Square a = damped_factor(part, n);
  const InversePower power = shampoo_->power(names_.order(), part.axis);
  const auto residual = [&](const Square& root) {
    return root_residual(a, root, n, power.p, power.q);
  };
  findings_.add(cat("own inv_root_", part.axis, ".", step_, " residual"),
                residual(read_matrix(x)),
                kWorse * residual(theirs->values) + rounding_ * kRootUnits);
  write_matrix(x, theirs->values);
  return true;
}

}  // namespace canzona

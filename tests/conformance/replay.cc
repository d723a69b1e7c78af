#include "tests/conformance/replay.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "tests/conformance/translate.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/runs.h"

namespace canzona::tests {
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
                        canzona::to_string(tensor->dims), ", expected ",
                        elements, " elements"));
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
    fixture_.refuse(cat("tensor ", quoted(wanted), " is not a permutation"));
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

namespace {

std::unique_ptr<Rule> make_replayed_rule(const Fixture& fixture,
                                         const Translation& ours) {
  const DType dtype = fixture.dtype == "f64" ? DType::kFp64 : DType::kFp32;
  return supported(
      [&] { return make_rule(fixture.rule, ours.options, dtype); });
}

// Keeps the factors that a rule took in a step, one after the other.
class FactorWitness final : public DecompositionHook {
 public:
  explicit FactorWitness(const TensorMemory& memory) : memory_(memory) {}

  void saw_factor(ConstMatrices in, ConstMatrices out) override {
    keep(in, in_);
    keep(out, out_);
  }
  void forget() {
    in_.clear();
    out_.clear();
  }
  const std::vector<double>& in() const { return in_; }
  const std::vector<double>& out() const { return out_; }

 private:
  void keep(ConstMatrices seen, std::vector<double>& kept) const {
    const std::vector<double> values =
        memory_.values({seen.data, seen.dtype}, seen.elements() * seen.count);
    kept.insert(kept.end(), values.begin(), values.end());
  }

  const TensorMemory& memory_;
  std::vector<double> in_, out_;
};

// The tensor, or a block of its rows that is a matrix of its own.
struct ReplayedBlock {
  ReplayedBlock(Engine& engine, const Rule& rule, const Dims& dims,
                int64_t first_element)
      : stages(engine, rule, dims),
        whole(engine, rule, dims),
        names(make_state_names(rule, dims)),
        witness(stages),
        begin(static_cast<size_t>(first_element)) {}

  std::span<const double> own(const std::vector<double>& all) const {
    return std::span(all).subspan(begin, static_cast<size_t>(stages.count()));
  }

  TensorMemory stages;
  TensorMemory whole;
  std::unique_ptr<StateNames> names;
  FactorWitness witness;
  size_t begin;
};

class Replay {
 public:
  Replay(Engine& engine, const Fixture& fixture, const Translation& ours,
         const CheckOptions& options)
      : fixture_(fixture),
        learning_rates_(ours.learning_rates),
        slack_(options.slack_of(fixture.dtype)),
        rule_(make_replayed_rule(fixture, ours)) {
    Dims dims = fixture.tensor("param.0").dims;
    const int64_t row = num_elements(dims) / std::max<int64_t>(dims.at(0), 1);
    int64_t begin = 0;
    for (const int64_t rows : row_blocks(fixture)) {
      dims[0] = rows;
      blocks_.push_back(
          std::make_unique<ReplayedBlock>(engine, *rule_, dims, begin * row));
      begin += rows;
    }
    for (const auto& [name, tensor] : fixture.tensors) {
      const auto parsed = parse_tensor_name(name);
      if (parsed && !parsed->inject && parsed->what != "grad")
        expected_.emplace(parsed->step, std::pair(*parsed, &tensor));
    }
  }

  Findings run() {
    const std::vector<double>& start = fixture_.tensor("param.0").values;
    for (const auto& block : blocks_)
      for (const TensorMemory* memory : {&block->stages, &block->whole})
        memory->set(memory->weights(), block->own(start));
    for (int64_t t = 1; t <= fixture_.steps; ++t) {
      for (const auto& block : blocks_) step_block(*block, t);
      compare_step(t);
    }
    return findings_;
  }

 private:
  void step_block(ReplayedBlock& block, int64_t t) {
    const Step step{t, learning_rates_[static_cast<size_t>(t - 1)]};
    const std::vector<double>& grad = fixture_.tensor(cat("grad.", t)).values;
    for (const TensorMemory* memory : {&block.stages, &block.whole})
      memory->set(memory->grad(), block.own(grad));
    if (!fixture_.injected) {
      block.witness.forget();
      block.stages.step_by_stages(step, &block.witness);
      block.whole.step_as_one(step, nullptr);
      return;
    }
    Findings ignored;  // the other run has found these already
    Injection injection(fixture_, *rule_, *block.names, block.stages,
                        findings_);
    Injection repeated(fixture_, *rule_, *block.names, block.whole, ignored);
    injection.begin(t);
    repeated.begin(t);
    block.stages.step_by_stages(step, &injection);
    block.whole.step_as_one(step, &repeated);
    injection.end();
  }

  void compare_step(int64_t t) {
    const auto [begin, end] = expected_.equal_range(t);
    for (auto it = begin; it != end; ++it)
      compare(it->second.first, *it->second.second);
    for (const auto& block : blocks_) {
      const std::string different = block->stages.difference(block->whole);
      if (!different.empty())
        findings_.fail(cat("step ", t, ": the fused step leaves other bits in ",
                           different, " than the stages"));
    }
  }

  void compare(const TensorName& name, const FixtureTensor& expected) {
    const auto tolerance = tolerance_of(fixture_, name);
    if (!tolerance) return;
    std::vector<double> got;
    for (const auto& block : blocks_) {
      const std::vector<double> own = values_of(*block, name);
      got.insert(got.end(), own.begin(), own.end());
    }
    std::vector<double> wanted = expected.values;
    if (got.empty())
      return findings_.fail(cat("there is no ", to_string(name)));
    if (got.size() != wanted.size())
      return findings_.fail(cat(to_string(name), " has ", got.size(),
                                " elements, the reference has ",
                                wanted.size()));
    if (!fixture_.injected)
      forgive_signs(name.what, expected.dims, got, wanted);
    findings_.add(to_string(name), deviation(got, wanted),
                  widened(*tolerance, slack_));
  }

  // Our own eigenvectors may point either way.
  void forgive_signs(const std::string& what, const Dims& dims,
                     std::vector<double>& got, std::vector<double>& wanted) {
    if (what.starts_with("basis_"))
      match_column_signs(got, wanted, dims.back());
    const bool rotated = fixture_.rule == "soap" && fixture_.preset != "meta";
    if (what != "exp_avg" || !rotated) return;
    for (double& x : got) x = std::abs(x);
    for (double& x : wanted) x = std::abs(x);
  }

  // Returns nothing if there is no such state.
  static std::vector<double> values_of(const ReplayedBlock& block,
                                       const TensorName& name) {
    const TensorMemory& memory = block.stages;
    if (name.what == "param")
      return memory.values(memory.weights(), memory.count());
    if (name.what == "update")
      return memory.values(memory.update(), memory.count());
    if (name.what == "ortho_in") return block.witness.in();
    if (name.what == "ortho_out") return block.witness.out();
    const int64_t number = std::max<int64_t>(name.block, 0);
    if (number >= block.names->num_blocks()) return {};
    if (const auto view = block.names->find(number, name.what))
      return gather(memory, *view);
    if (name.what.starts_with("eigval_"))
      return estimates(block, number, name.what.substr(7));
    return {};
  }

  // Estimates eigenvalues that the rule does not keep from what it does.
  static std::vector<double> estimates(const ReplayedBlock& block,
                                       int64_t number,
                                       const std::string& axis) {
    const auto factor = block.names->find(number, "factor_" + axis);
    const auto basis = block.names->find(number, "basis_" + axis);
    if (!factor || !basis) return {};
    return eigenvalue_estimates(gather(block.stages, *basis),
                                gather(block.stages, *factor), basis->dims[0]);
  }

  const Fixture& fixture_;
  std::vector<double> learning_rates_;
  double slack_;
  std::unique_ptr<Rule> rule_;
  std::vector<std::unique_ptr<ReplayedBlock>> blocks_;
  std::multimap<int64_t, std::pair<TensorName, const FixtureTensor*>> expected_;
  Findings findings_;
};

}  // namespace

Findings replay(Engine& engine, const Fixture& fixture,
                const CheckOptions& options) {
  const Translation ours =
      translate(fixture, options.newton_schulz, options.device);
  return Replay(engine, fixture, ours, options).run();
}

}  // namespace canzona::tests

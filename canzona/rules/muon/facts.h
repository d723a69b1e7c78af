// Muon: momentum, then an orthogonal factor of it by Newton–Schulz.
//
// The momentum lives with the shard; only the blend of gradient and momentum
// travels to the owner, the orthogonal factor travels back.
#pragma once

#include "canzona/rules/facts.h"
#include "canzona/rules/muon/coefficients.h"

namespace canzona {

// How Newton–Schulz is carried out on an m x n matrix, m <= n. All forms give
// the same result up to rounding.
enum class NewtonSchulz {
  kStandard,   // three full products a step
  kSymmetric,  // the same, symmetric results by one triangle
  kGram,       // on the m x m Gram matrix, restarted now and then
};
std::string_view to_string(NewtonSchulz form);

// A tensor as Muon sees it: one matrix or, if it has more than two axes, a
// stack of them.
struct MuonStack {
  MatrixShape shape;
  int64_t count = 1;
};

class MuonFacts final : public RuleFacts {
 public:
  explicit MuonFacts(const RuleOptions& given);

  std::string_view name() const override { return "muon"; }
  RuleOptions options() const override { return options_; }
  std::vector<StateFact> states(MatrixShape shape) const override;
  std::vector<StateFact> tensor_states(
      const std::vector<int64_t>& dims) const override;
  RuleWork work(MatrixShape shape) const override;
  std::string algorithm(MatrixShape shape) const override;

  // UsageError if it has fewer than two axes.
  MuonStack stack_of(const std::vector<int64_t>& dims) const;
  // The form that runs on this shape.
  NewtonSchulz form(MatrixShape shape) const;
  int64_t steps() const { return static_cast<int64_t>(coefficients_.size()); }
  int64_t restarts() const { return restarts_; }
  // One per step.
  const std::vector<Coefficients>& coefficients() const {
    return coefficients_;
  }
  // The steps after which the Gram form starts anew: {2, 4}.
  std::vector<int64_t> restart_steps() const;
  // With fewer rows and columns than this the Gram form starts anew after
  // every step, which makes it the symmetric one: in bf16 the rounding of a
  // small Gram matrix does not average out.
  int64_t gram_rows() const;

 private:
  RuleOptions options_;
  std::vector<Coefficients> coefficients_;
  int64_t restarts_;
  bool flattens_;
};

RuleEntry muon_entry();

}  // namespace canzona

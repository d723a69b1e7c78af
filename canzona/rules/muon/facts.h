// Muon: momentum, then an orthogonal factor of it by Newton–Schulz.
//
// The momentum lives with the shard; only the blend of gradient and momentum
// travels to the owner, the orthogonal factor travels back.
#pragma once

#include <string_view>
#include <vector>

#include "canzona/rules/facts.h"
#include "canzona/rules/muon/coefficients.h"

namespace canzona {

// The forms of Newton–Schulz on an m x n matrix, m <= n. All forms give the
// same result up to rounding.
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

// A MuonWay is how the rule computes one shape: what the planner weighs and the
// rule runs.
struct MuonWay {
  NewtonSchulz form = NewtonSchulz::kSymmetric;
  // A small matrix, which is computed in fp32 where the others are in bf16.
  bool small = false;
  int strips = 1;  // of the long side (rules/strips.h)
};

// A factor travels as its lower triangle, after the scalars that belong to it.
inline constexpr int64_t kFactorScalarBytes = 32;
// Of what one strip adds to the norm.
inline constexpr int64_t kNormPartBytes = 16;

class MuonFacts final : public RuleFacts {
 public:
  explicit MuonFacts(const RuleOptions& given);

  std::string_view name() const override { return "muon"; }
  RuleOptions options() const override { return options_; }
  std::vector<StateFact> states(MatrixShape shape) const override;
  std::vector<StateFact> tensor_states(
      const std::vector<int64_t>& dims) const override;
  RuleWork work(MatrixShape shape) const override;
  StripFacts strips(MatrixShape shape) const override;
  std::string algorithm(MatrixShape shape) const override;

  // UsageError if it has fewer than two axes.
  MuonStack stack_of(const std::vector<int64_t>& dims) const;
  // Returns what runs on this shape. In bf16 matrices of at most 64 rows or
  // columns are small: no form is exact enough for them once the input is
  // rounded, and fp32 costs next to nothing. With unsafe=on none is.
  MuonWay way(MatrixShape shape) const;
  NewtonSchulz form(MatrixShape shape) const { return way(shape).form; }
  // The precision in which this shape is computed: "bf16".
  std::string precision(MatrixShape shape) const;
  int64_t steps() const { return static_cast<int64_t>(coefficients_.size()); }
  int64_t restarts() const { return restarts_; }
  // One per step.
  const std::vector<Coefficients>& coefficients() const {
    return coefficients_;
  }
  // The steps after which the Gram form starts anew: {2, 4}. Small matrices
  // start anew as seldom as fp32 allows.
  std::vector<int64_t> restart_steps(bool small = false) const;

 private:
  bool is_small(MatrixShape shape) const;
  int num_strips(MatrixShape shape) const;
  // Steps whose polynomial has a square.
  int64_t num_squares() const;
  // Times that the Gram matrix is formed.
  int64_t num_segments(MuonWay way) const;

  RuleOptions options_;
  std::vector<Coefficients> coefficients_;
  int64_t restarts_;
  bool flattens_;
  int64_t small_restarts_;
  int strips_;  // as asked for; 0: auto
};

RuleEntry muon_entry();

// Muon's options and presets, and the checks between them.

const std::vector<OptionFact>& muon_options();
const std::vector<Preset>& muon_presets();

// All options in force, with every "auto" but that of newton_schulz resolved.
// UsageError if they contradict each other or are known to do harm; the latter
// may be had with unsafe=on.
RuleOptions muon_options_in_force(const RuleOptions& given);

// Returns how often the Gram form must start anew in this precision.
int64_t muon_restarts_needed(const RuleOptions& in_force,
                             std::string_view precision);

// The steps that these options mean.
std::vector<Coefficients> muon_coefficients(const RuleOptions& in_force);

}  // namespace canzona

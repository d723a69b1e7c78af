// Muon: momentum, then its orthogonal factor by Newton–Schulz.
//
// The momentum lives with the shard; only the blend of gradient and momentum is
// sent to the owner, and the orthogonal factor is sent back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/rules/facts.h"
#include "canzona/rules/muon/links.h"

namespace canzona::rules {

// Coefficient sets for Newton–Schulz: each step maps every singular value x to
// a·x + b·x³ + c·x⁵.

struct Coefficients {
  double a = 0;
  double b = 0;
  double c = 0;
  friend bool operator==(const Coefficients&, const Coefficients&) = default;
};

struct CoefficientSet {
  std::string_view name;
  std::vector<Coefficients> steps;
  // True: any number of steps makes sense; false: exactly those listed.
  bool open_ended = true;
  int usual_steps = 5;
  // The norm is multiplied by this, for sets without headroom above 1.
  double norm_factor = 1;
  // Why the set must not be used as it is; empty if it may.
  std::string_view hazard;
  // The number of steps that the Gram form may take in bf16 before it must
  // restart. Sets with little headroom above 1 tolerate no rounding of the Gram
  // matrix at all.
  int longest_segment_bf16 = 1;
  int longest_segment_fp16 = 2;
};

const std::vector<CoefficientSet>& coefficient_sets();
// Throws InternalError if there is none.
const CoefficientSet& coefficient_set(std::string_view name);

// Beyond the end of a set, its last step is repeated, or the whole set is.
enum class Overrun { kLast, kCycle };
std::vector<Coefficients> unrolled(const std::vector<Coefficients>& set,
                                   int64_t steps, Overrun overrun);

// Returns the image of one singular value under the steps, in fp64.
double composed(const std::vector<Coefficients>& steps, double x);

// Describes the first x in (0, 1.02] that the steps make negative or larger
// than 1.5; empty if there is none. Values just above 1 count because rounding
// lifts singular values above 1.
std::string first_fault(const std::vector<Coefficients>& steps);

// The forms of Newton–Schulz on an m x n matrix, m <= n. All forms give the
// same result up to rounding.
enum class NewtonSchulz {
  kStandard,   // three full products per step
  kSymmetric,  // the same, computing one triangle of symmetric results
  kGram,       // on the m x m Gram matrix, restarted periodically
};
std::string_view to_string(NewtonSchulz form);

// A tensor as Muon sees it: one matrix or, with more than two axes, a stack.
// With column heads the matrices lie side by side.
struct MuonStack {
  MatrixShape shape;
  int64_t count = 1;
  bool by_columns = false;
};

// A MuonWay is how the rule computes one shape: the planner prices it and the
// rule runs it.
struct MuonWay {
  NewtonSchulz form = NewtonSchulz::kSymmetric;
  // A small matrix is computed in fp32 where others use bf16.
  bool small = false;
  int strips = 1;  // of the long side (rules/strips.h)
};

// A factor is sent as its lower triangle, preceded by its scalars.
inline constexpr int64_t kFactorScalarBytes = 32;
// Size of one strip's term of the norm.
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
  int gather_fields() const override { return links_.fields(); }
  int64_t operand_bytes_per_element() const override {
    return 2 * kBytesPerBf16;
  }
  int64_t optional_bytes_per_element() const override {
    return links_.bytes_per_element();
  }

  const MuonLinks& links() const { return links_; }
  // True if all matrices are cut into column heads.
  bool cuts_columns() const { return column_heads_ > 1; }
  // Throws UsageError if the tensor has fewer than two axes.
  MuonStack stack_of(const std::vector<int64_t>& dims) const;
  // Returns what runs on this shape. In bf16, matrices of at most 64 rows or
  // columns are small: no form is accurate enough for them once the input is
  // rounded, and fp32 costs next to nothing. With unsafe=on no matrix is small.
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
  // The steps after which the Gram form restarts: {2, 4}. Small matrices
  // restart as rarely as fp32 allows.
  std::vector<int64_t> restart_steps(bool small = false) const;

 private:
  // Throws UsageError if heads do not divide the columns.
  MuonStack heads_of(MatrixShape shape) const;
  bool is_small(MatrixShape shape) const;
  int num_strips(MatrixShape shape) const;
  // Number of steps whose polynomial has a square.
  int64_t num_squares() const;
  // Number of times that the Gram matrix is formed.
  int64_t num_segments(MuonWay way) const;

  RuleOptions options_;
  MuonLinks links_;
  std::vector<Coefficients> coefficients_;
  int64_t restarts_;
  bool flattens_;
  int64_t small_restarts_;
  int strips_;  // as requested; 0: auto
  int64_t column_heads_;
};

RuleEntry muon_entry();

// Muon's options and presets, and the checks between options.
const std::vector<OptionFact>& muon_options();
const std::vector<Preset>& muon_presets();

// All options in force, with every "auto" except that of newton_schulz
// resolved. Throws UsageError if options contradict each other or are known to
// do harm; unsafe=on permits the latter.
RuleOptions muon_options_in_force(const RuleOptions& given);

// Returns how often the Gram form must restart in this precision.
int64_t muon_restarts_needed(const RuleOptions& in_force,
                             std::string_view precision);

// Returns the coefficients that these options select, one per step.
std::vector<Coefficients> muon_coefficients(const RuleOptions& in_force);

}  // namespace canzona::rules

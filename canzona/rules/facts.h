// What the planner must know about a rule: its states, work and traffic.
// Standard library only; the computing side of a rule is a separate link
// target.
//
//   auto muon = make_rule_facts("muon", {{"newton_schulz", "gram"}});
//   RuleWork work = muon->work({5120, 25600});
//
// Facts are immutable and may be read from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"

namespace canzona {

// With several column heads the columns are that many equal blocks, each a
// matrix of its own; only Muon knows them.
struct MatrixShape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t column_heads = 1;
  friend auto operator<=>(const MatrixShape&, const MatrixShape&) = default;
};
std::string to_string(MatrixShape shape);  // "5120x25600"

// A state is stored either in 1/tp pieces beside the master weights on every
// rank of the home, or whole at the matrix's owner.
enum class Lives { kWithShard, kWithOwner };

// The value of a state before the first step. kIdentity: every square matrix of
// the stack is the identity.
enum class Initially { kZero, kIdentity };

struct StateFact {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype;  // "fp32"
  Lives lives = Lives::kWithShard;
  Initially initially = Initially::kZero;

  int64_t elements() const;
  Bytes bytes() const;
};

// Flops that one matrix really costs.
struct RuleWork {
  Flops every_step;
  Flops refresh;  // once per period, in addition to every_step
};

// StripFacts say how ranks may share a matrix: its long side is cut into strips
// (strips.h), and each rank of a team takes equally many. One rank, the head,
// does the work that cannot be shared. A matrix with one strip may still have a
// helper: a second rank that takes part in refreshes alone. It gets a triangle
// of statistics from the head, which does everything else, and sends back the
// factor that it computes. Without either the matrix is not shared.
struct StripFacts {
  int strips = 1;
  Flops strip;                // of the widest strip, per step
  Flops strip_sum;            // of that: the strip's term of one sum
  Flops head;                 // of the head beyond its strips, per step
  int segments = 0;           // sums per step, each giving one factor
  int64_t sum_elements = 0;   // per sum: an fp32 lower triangle
  int64_t rounded_bytes = 0;  // per rounded element of a sum
  int64_t factor_bytes = 0;   // per factor, as every member receives it
  int64_t norm_bytes = 0;     // of one strip's term of a norm
  // In a refresh, in addition: of the widest strip, and of the head.
  Flops strip_refresh;
  Flops head_refresh;
  bool factors_at_refresh = false;  // in no other step there is a factor
  // In a refresh, of the helper, while the head does head_refresh; both of that
  // precede the head's strip_refresh. The triangle has sum_elements.
  Flops helper_refresh;

  bool has_helper() const { return helper_refresh > Flops(0); }
  // The size of the largest team; 1 if the matrix is not shared.
  int most_ranks() const { return has_helper() ? 2 : strips; }

  friend bool operator==(const StripFacts&, const StripFacts&) = default;
};

// A BlockState says where the state of a block lies in its matrix's states.
struct BlockState {
  std::string name;            // of the matrix's state: "L_edge"
  std::vector<int64_t> shape;  // of the matrix's state
  std::vector<int64_t> first;  // first element of the block's part, per dim
};

// A state of a matrix that a member of a team keeps: its own part, where that
// lies in the matrix's state, and whether this member provides it if several
// keep the same.
struct TeamState {
  StateFact own;
  BlockState in_matrix;
  bool given = true;
};

using RuleOptions = std::map<std::string, std::string>;

struct OptionFact {
  std::string name;           // "newton_schulz"
  std::string default_value;  // "auto"
  std::string allowed;        // "standard|symmetric|gram|auto", "1..20"
  std::string meaning;        // one line
};

// A named set of options, usually called after the reference it comes from.
struct Preset {
  std::string name;     // "moonlight"
  std::string summary;  // one line
  RuleOptions values;   // where they differ from the defaults
};

// states() and work() throw UsageError, naming rule and matrix, if a side is
// negative or a count does not fit in 64 bits. A matrix with a side of 0 costs
// no work; a side of 1 is not special.
class RuleFacts {
 public:
  virtual ~RuleFacts() = default;

  virtual std::string_view name() const = 0;
  // All options with the values in force, for plan.json and reports. Passing
  // them to make_rule_facts gives the same facts again.
  virtual RuleOptions options() const = 0;
  virtual std::vector<StateFact> states(MatrixShape shape) const = 0;
  // The same for a tensor of any order. Only some rules take such a tensor
  // whole; the others see a stack of matrices.
  virtual std::vector<StateFact> tensor_states(
      const std::vector<int64_t>& dims) const;
  virtual RuleWork work(MatrixShape shape) const = 0;
  // How ranks may share this shape; depends on shape and options alone. By
  // default no matrix is shared.
  virtual StripFacts strips(MatrixShape /*shape*/) const { return {}; }
  // The sides of the independent blocks that a shape consists of, with shorter
  // blocks at the ends, numbered row by row. Each block has the bits of a
  // matrix of its own, whoever computes the others. Returns `shape` itself if
  // it is one block. Depends on shape and options alone.
  virtual MatrixShape block(MatrixShape shape) const { return shape; }
  // One entry per state kept at the owner of a block, in the order in which
  // states() lists them for the block's own shape. Needed only if block()
  // splits shapes.
  virtual std::vector<BlockState> block_states(MatrixShape /*shape*/,
                                               int64_t /*number*/) const {
    return {};
  }
  // The states kept at the owner that one member of a team keeps of a matrix
  // that strips() lets `members` ranks share; member 0 is the head.
  // Needed only by a rule that keeps states there.
  virtual std::vector<TeamState> team_states(MatrixShape /*shape*/,
                                             int /*members*/,
                                             int /*member*/) const {
    return {};
  }
  // The algorithm that will run on this shape: "gram", "symmetric", "qr", …
  virtual std::string algorithm(MatrixShape shape) const = 0;
  // False for an element-wise rule, which needs no owner (AdamW).
  virtual bool needs_whole_matrix() const { return true; }
  // True if the states kept with the shard change when an update is applied,
  // false if they change when it is prepared.
  virtual bool applies_to_states() const { return false; }
  // Refreshes happen every `period` steps, spread over `phases` of those steps.
  virtual int period() const { return 1; }
  virtual int phases() const { return 1; }
  // True if matrices of this phase are refreshed in this step, counted from 1.
  virtual bool refreshes(int64_t /*step*/, int /*phase*/) const {
    return false;
  }
  // Bytes per matrix element sent to the owner before transform, and back after
  // it. A rule that gathers several fields sends each in fp32.
  virtual int gather_fields() const { return 1; }
  virtual int64_t gather_bytes_per_element() const {
    return gather_fields() * kBytesPerFp32;
  }
  virtual int64_t scatter_bytes_per_element() const { return kBytesPerFp32; }
  // Bytes per element that transform moves at least for operands in a format of
  // its own, once in and once out: 4 if they are 16-bit numbers.
  virtual int64_t operand_bytes_per_element() const { return 0; }
  // Bytes per element that its options move through memory in a step, beyond
  // what the rule moves without them.
  virtual int64_t optional_bytes_per_element() const { return 0; }
};

// A learning rate that works well in a preset of `canzona train`.
struct TunedRate {
  std::string preset;  // "tiny"
  std::string learning_rate;
};

// Describes one rule. rules.def, with one line per rule, is the only list of
// rules.
struct RuleEntry {
  std::string name;
  std::string summary;
  std::vector<OptionFact> options;
  std::vector<Preset> presets;  // the first is the default
  std::unique_ptr<RuleFacts> (*make)(const RuleOptions& options);
  // In other presets the default of the option learning_rate holds.
  std::vector<TunedRate> tuned = {};
  // The options of each measurement that `canzona calibrate` makes of the rule;
  // device and precision are added if the rule has them. Measurements must
  // differ in what algorithm() returns.
  std::vector<RuleOptions> calibrated = {RuleOptions{}};
};
const std::vector<RuleEntry>& rule_table();

// The rule of matrices if none is named, and the rule of everything that is no
// matrix.
inline constexpr const char* kDefaultRule = "muon";
inline constexpr const char* kElementRule = "adamw";

bool has_option(const RuleEntry& rule, std::string_view option);
// Returns the names of the rules that have an option, in the table's order.
std::vector<std::string> rules_with(std::string_view option);

// The `make` of a RuleEntry whose facts are constructed from options.
template <class Facts>
std::unique_ptr<RuleFacts> make_facts(const RuleOptions& options) {
  return std::make_unique<Facts>(options);
}

// Sets the option "device" ("cpu", "cuda") of a rule that has one, unless it is
// given.
RuleOptions with_device(std::string_view rule, RuleOptions options,
                        std::string_view device);

// Throws UsageError on an unknown rule, option or value; the message lists what
// is allowed and the nearest known name.
std::unique_ptr<RuleFacts> make_rule_facts(std::string_view rule,
                                           const RuleOptions& options);

// Counts what one matrix costs. Shapes come from files, so a count may not fit
// in 64 bits; the error then names the rule and the matrix.
inline bool is_empty(MatrixShape shape) {
  return shape.rows == 0 || shape.cols == 0;
}

// a·b·c, checked.
inline Flops cubic(int64_t a, int64_t b, int64_t c) { return Flops(a) * b * c; }

// Returns count(); prefixes its UsageError with the rule and the matrix.
template <class Count>
auto count_for(std::string_view rule, MatrixShape shape, const Count& count) {
  try {
    if (shape.rows < 0 || shape.cols < 0)
      throw UsageError("a side is negative");
    return count();
  } catch (const UsageError& error) {
    throw UsageError(
        cat("rule ", rule, ", matrix ", to_string(shape), ": ", error.what()));
  }
}

// Returns the states from make(), after checking that their bytes can be
// counted.
template <class Make>
std::vector<StateFact> states_for(std::string_view rule, MatrixShape shape,
                                  const Make& make) {
  return count_for(rule, shape, [&] {
    std::vector<StateFact> states = make();
    Bytes total;
    for (const StateFact& state : states) total += state.bytes();
    return states;
  });
}

}  // namespace canzona

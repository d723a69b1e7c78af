// The planner must know of a rule its states, work and traffic. Standard
// library only; the computing side of a rule lives in another link target.
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

struct MatrixShape {
  int64_t rows = 0;
  int64_t cols = 0;
  friend auto operator<=>(const MatrixShape&, const MatrixShape&) = default;
};
std::string to_string(MatrixShape shape);  // "5120x25600"

// A state lives in 1/tp pieces beside the master weights on every rank of the
// home, or whole at the matrix's owner.
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

// Flops of what will really run on one matrix.
struct RuleWork {
  Flops every_step;
  Flops refresh;  // once per period, beside every_step
};

// StripFacts say how a matrix may be shared between ranks: its long side in
// strips (strips.h), of which each rank of a team has equally many. One of
// them, the head, does what cannot be shared. One strip: not at all.
struct StripFacts {
  int strips = 1;
  Flops strip;                // of the widest strip, a step
  Flops strip_sum;            // of it: what the strip adds to one sum
  Flops head;                 // of the head beside its strips, a step
  int segments = 0;           // sums, and factors handed out, in a step
  int64_t sum_elements = 0;   // of a sum: an fp32 lower triangle
  int64_t rounded_bytes = 0;  // of an element of a sum that was rounded
  int64_t factor_bytes = 0;   // of a factor, as every member receives it
  int64_t norm_bytes = 0;     // of what one strip adds to a norm
  // Strips may come and go one by one (strips.h): what a strip adds to
  // the first sum does not wait for the others' norms. Requires one field and
  // no states with the owner.
  bool one_by_one = false;

  friend bool operator==(const StripFacts&, const StripFacts&) = default;
};

// A BlockState says where a state of a block lies in the states of its matrix.
struct BlockState {
  std::string name;            // of the matrix's state: "L_edge"
  std::vector<int64_t> shape;  // of that
  std::vector<int64_t> first;  // element of it at which the block's begins
};

using RuleOptions = std::map<std::string, std::string>;

struct OptionFact {
  std::string name;           // "newton_schulz"
  std::string default_value;  // "auto"
  std::string allowed;        // "standard|symmetric|gram|auto", "1..20"
  std::string meaning;        // one line
};

// Settings under a name, usually that of the reference they come from.
struct Preset {
  std::string name;     // "moonlight"
  std::string summary;  // one line
  RuleOptions values;   // where they differ from the defaults
};

// states() and work() throw UsageError, naming rule and matrix, if a side is
// negative or a count does not fit 64 bits. A side may be 0 or 1: the former
// means no work, the latter is a matrix like any other.
class RuleFacts {
 public:
  virtual ~RuleFacts() = default;

  virtual std::string_view name() const = 0;
  // All options with the values in force, for plan.json and reports. Given to
  // make_rule_facts they make the same facts again.
  virtual RuleOptions options() const = 0;
  virtual std::vector<StateFact> states(MatrixShape shape) const = 0;
  // The same for a tensor of any order, which only some rules take whole; the
  // others see a stack of matrices.
  virtual std::vector<StateFact> tensor_states(
      const std::vector<int64_t>& dims) const;
  virtual RuleWork work(MatrixShape shape) const = 0;
  // How ranks may share this shape. It follows from shape and options alone. A
  // rule that says nothing shares no matrix.
  virtual StripFacts strips(MatrixShape shape) const {
    static_cast<void>(shape);
    return {};
  }
  // A shape may fall apart into blocks: rectangles of these sides, shorter ones
  // at the ends, numbered row by row. Each of them has the bits of a matrix of
  // its own, whoever computes the others. The shape itself: it is one block. It
  // follows from shape and options alone.
  virtual MatrixShape block(MatrixShape shape) const { return shape; }
  // Of every state that lives with the owner of a block, as states() lists them
  // of the block's own shape. Needed only if shapes fall apart.
  virtual std::vector<BlockState> block_states(MatrixShape shape,
                                               int64_t number) const {
    static_cast<void>(shape);
    static_cast<void>(number);
    return {};
  }
  // The algorithm that will run on this shape: "gram", "symmetric", "qr", …
  virtual std::string algorithm(MatrixShape shape) const = 0;
  // False: the rule is element-wise and needs no owner (AdamW).
  virtual bool needs_whole_matrix() const { return true; }
  // True: states that live with the shard change when an update is applied;
  // false: when it is prepared.
  virtual bool applies_to_states() const { return false; }
  // Refreshes happen every `period` steps, spread over `phases` of them.
  virtual int period() const { return 1; }
  virtual int phases() const { return 1; }
  // Bytes per matrix element sent to the owner before transform, and back. A
  // rule that gathers several fields sends each in fp32.
  virtual int gather_fields() const { return 1; }
  virtual int64_t gather_bytes_per_element() const {
    return gather_fields() * kBytesPerFp32;
  }
  virtual int64_t scatter_bytes_per_element() const { return kBytesPerFp32; }
};

// One rule tells this of itself. rules.def has one line per rule; it is the
// only place that lists them.
struct RuleEntry {
  std::string name;
  std::string summary;
  std::vector<OptionFact> options;
  std::vector<Preset> presets;  // the first is the default
  std::unique_ptr<RuleFacts> (*make)(const RuleOptions& options);
};
const std::vector<RuleEntry>& rule_table();

// The `make` of a table line, for facts made from given options.
template <class Facts>
std::unique_ptr<RuleFacts> make_facts(const RuleOptions& options) {
  return std::make_unique<Facts>(options);
}

// The options of a rule that is to run on a device ("cpu", "cuda"), unless they
// name one themselves. Rules that are the same everywhere stay as they are.
RuleOptions with_device(std::string_view rule, RuleOptions options,
                        std::string_view device);

// UsageError names an unknown rule, option or value, what is allowed and the
// nearest known name.
std::unique_ptr<RuleFacts> make_rule_facts(std::string_view rule,
                                           const RuleOptions& options);

// Counting what one matrix costs. Shapes come from files, so a count may not
// fit 64 bits; what the caller sees then is the rule and the matrix.

inline bool is_empty(MatrixShape shape) {
  return shape.rows == 0 || shape.cols == 0;
}

// a·b·c, checked.
inline Flops cubic(int64_t a, int64_t b, int64_t c) { return Flops(a) * b * c; }

// The result of `count`; its UsageError gets the rule and the matrix in front.
template <class Count>
auto count_for(std::string_view rule, MatrixShape shape, const Count& count) {
  try {
    if (shape.rows < 0 || shape.cols < 0) throw UsageError("negative side");
    return count();
  } catch (const UsageError& error) {
    throw UsageError(
        cat("rule ", rule, ", matrix ", to_string(shape), ": ", error.what()));
  }
}

// The states that `make` returns, once it is sure that their bytes can be
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

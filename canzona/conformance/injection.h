// Replaces decompositions of a replayed rule by those of the reference, if the
// fixture has them, and checks the rule's own by properties of every correct
// answer: it must be as good as the reference's, up to rounding.
//
//   Injection injection(fixture, *rule, *names, memory, findings);
//   injection.begin(step);
//   rule->transform(…, {…, .hook = &injection});
//   injection.end();
//
// All arguments must outlive it. One thread at a time.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "canzona/conformance/compare.h"
#include "canzona/conformance/fixture.h"
#include "canzona/conformance/tensor_memory.h"
#include "canzona/rules/shampoo/options.h"

namespace canzona {

class Injection final : public DecompositionHook {
 public:
  Injection(const Fixture& fixture, const Rule& rule, const StateNames& names,
            const TensorMemory& memory, Findings& findings);

  void begin(int64_t step);
  // Fails if the reference decomposed something that the rule did not.
  void end();

  void order(const FactorId& part, std::span<int64_t> columns) override;
  bool basis(const FactorId& part, Matrices q, Matrices values) override;
  bool inverse_root(const FactorId& part, Matrices x) override;

 private:
  std::string name(const FactorId& part, const char* kind) const;
  // Returns the reference's tensor. Throws UsageError if it has another number
  // of elements; returns null, and records a failure, if there is none.
  const FixtureTensor* find(const std::string& name, int64_t elements);
  Square factor(const FactorId& part) const;
  // The matrix whose root is taken.
  Square damped_factor(const FactorId& part, int64_t n) const;
  void check_basis(const FactorId& part, const Square& own,
                   const Square& theirs, int64_t n);

  const Fixture& fixture_;
  const StateNames& names_;
  const TensorMemory& memory_;
  Findings& findings_;
  std::optional<ShampooOptions> shampoo_;
  double rounding_;
  int64_t step_ = 0;
  std::set<std::string> unused_;  // of the step, not requested yet
};

}  // namespace canzona

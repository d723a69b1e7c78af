// Replays a fixture and compares the results.
#pragma once

#include <optional>
#include <set>
#include <string>

#include "tests/conformance/fixture.h"
#include "tests/conformance/tensor_memory.h"
#include "canzona/linalg/engine.h"
#include "canzona/rules/shampoo/facts.h"

namespace canzona::tests {

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

// By how much tolerances are widened on a GPU, where only the formulas are the
// reference's.
inline constexpr double kSlackOnGpu = 10;

struct CheckOptions {
  // Muon's form: auto, standard, symmetric, gram.
  std::string newton_schulz = "auto";
  // The device of the engine: cpu or cuda.
  std::string device = "cpu";
  // Tolerances hold for the reference's machine, library and rounding points.
  // These factors widen those of fp32 results and those of others.
  double slack = 4;
  double other_slack = 1;

  // The slack of results in "f64", "f32" or "bf16".
  double slack_of(const std::string& dtype) const {
    return dtype == "f32" ? slack : other_slack;
  }
};

// Replays a fixture of a rule: all its steps, through the rule's stages and,
// separately, through the fused step. Every tensor of the fixture is compared
// after every step, and stages and fused step must agree bit for bit.

// Throws Unsupported; UsageError if the file is invalid; NumericalError if the
// arithmetic fails.
Findings replay(Engine& engine, const Fixture& fixture,
                const CheckOptions& options);

// Checks fixtures of pure functions: Newton–Schulz, inverse roots and QK-clip,
// each input in every number format for which the fixture has a result.

// Throws Unsupported; UsageError if the file is invalid.
Findings check_pure(Engine& engine, const Fixture& fixture,
                    const CheckOptions& options);

}  // namespace canzona::tests

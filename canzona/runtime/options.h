// What a trainer sets for a run and for a step, and what it learns of them.
//
//   RuntimeOptions options;
//   options.wire = DType::kBf16;
//   StepOutcome outcome = runtime.step({.learning_rate = 1e-3});
//
// Values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/base/dtype.h"
#include "canzona/comm/wire_ops.h"
#include "canzona/runtime/groups.h"
#include "canzona/runtime/step/rule_set.h"
#include "canzona/trace/trace.h"

namespace canzona {

struct RuntimeOptions {
  RuleOptions adamw = {};  // for all non-matrices, whatever the plan's rule
  std::vector<ParameterGroup> groups = {};
  // In which gradients are sent between data-parallel ranks: kFp32 or kBf16.
  DType wire = DType::kFp32;
  bool pipelined = true;  // false: wait for every exchange at once
  Overlap overlap = Overlap::kBackground;
  // Copies and adds memory of the engine. Null: chosen for the engine's memory;
  // tests pass others.
  const WireOps* wire_ops = nullptr;
  // With an asynchronous engine, and ranks that can order their collectives
  // (Communicator::can_order), calls only issue work and never wait. false:
  // every collective waits for the engine, and the caller waits for the
  // collective.
  bool ordered = true;
  // In that case, measures the engine's waits for RuntimeTimes, by marks in its
  // work.
  bool timed_waits = false;
  // Must outlive the runtime. Where calls only issue work, spans are those of
  // the device, and complete when the runtime is destroyed.
  Trace* trace = nullptr;
};

// The rows of a trained tensor are multiplied by these, one number for each.
struct RowFactors {
  int32_t tensor = 0;
  std::vector<float> factors;
};

struct StepSettings {
  double learning_rate = 0;         // for matrices, whatever the rule
  double adamw_learning_rate = -1;  // for all else; negative: the same
  // Sums over data-parallel ranks are multiplied by this: 1 / the number of
  // gradients added.
  double gradient_factor = 1;
  double clip_norm = 0;  // 0: no clipping
  bool wants_norm = false;
  // Applied to the weights that the step has updated, and to their masters,
  // before they are sent. Only with engines on the host.
  std::vector<RowFactors> row_factors = {};
};

struct StepOutcome {
  bool skipped = false;
  // After a skipped step: the tensor whose gradient was not finite and the rank
  // that had it; -1 if every rank's gradient was finite and only their sum is
  // not.
  std::string nonfinite_tensor = {};
  int nonfinite_rank = -1;
  double gradient_norm = 0;  // before clipping; 0 if not requested
  // From the last gradient reduced to the last parameter applied; with an
  // asynchronous engine, the time of this thread only.
  double seconds = 0;
};

// Seconds that this rank's compute has waited, and its links were busy, so far.
// If calls only issue work, these are the waits of the engine so far, measured
// only with RuntimeOptions::timed_waits; else those of this thread.
struct RuntimeTimes {
  double waited_for_gradients = 0;
  double waited_in_step = 0;  // for gathers and scatters of matrices
  double waited_for_parameters = 0;
  // With modelled links, the time in which at least one of this rank's ports
  // was busy, whoever used it. Otherwise the time of the runtime's own
  // operations, summed over threads.
  double links_busy = 0;
  bool links_modelled = false;
  // The same for gathers and scatters of matrices only, summed over the parts
  // of a plan.
  double exchange_busy = 0;
  // The part of links_busy and exchange_busy in which compute waited; only with
  // modelled links, and unless calls only issue work.
  double links_exposed = 0;
  double exchange_exposed = 0;
  double waited() const {
    return waited_for_gradients + waited_in_step + waited_for_parameters;
  }
};

}  // namespace canzona

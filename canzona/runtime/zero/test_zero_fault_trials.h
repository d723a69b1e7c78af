// Random faults in runs of hierarchical ZeRO, for tests.
//
//   FaultTrial trial = random_zero_fault(seed, words);
//   expect_fault_words(trial, run_fault(trial));
#pragma once

#include "canzona/runtime/testing/test_fault_trials.h"
#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime {

// `words` describes the fault.
inline FaultTrial random_zero_fault(uint64_t seed, std::string& words) {
  Random random(seed);
  const int32_t dp = random.pick<int32_t>({2, 4});
  ZeroVariant v;
  do {
    v.sizes = random.pick(all_zero_sizes(dp));
  } while (v.sizes.places() == 1);
  v.rule = random.pick<std::string>({"muon", "soap", "adamw"});
  v.overlap = random.pick<Overlap>(
      {Overlap::kNone, Overlap::kMain, Overlap::kBackground});
  v.message =
      random.pick<MessageUnit>({MessageUnit::kModule, MessageUnit::kParameter});
  v.prefetch = random.small(0, 2);
  v.tp = random.small(1, 2);
  v.reach = random.pick<Reach>({Reach::kDirect, Reach::kPerNode});
  v.ranks_per_node = 2 * v.tp;
  FaultTrial trial;
  trial.plan = zero_plan(toy_model(), dp, v);
  trial.runtime.overlap = v.overlap;
  trial.kind = random.pick<Fault>(
      {Fault::kThrow, Fault::kStall, Fault::kLeave, Fault::kThrowInOperation,
       Fault::kThrowInOperation, Fault::kStallInOperation});
  trial.victim = random.small(0, trial.plan.mesh.world() - 1);
  trial.moment = random.next();
  words = cat("trial ", seed, ": dp=", dp, " ", to_string(v), ", kind ",
              static_cast<int>(trial.kind), ", rank ", trial.victim);
  return trial;
}

}  // namespace canzona::runtime

// The request and the answer of `canzona bench step`.
#pragma once

#include <string>
#include <vector>

#include "canzona/measure/step_bench.h"
#include "canzona/report/bench/bench_text.h"

namespace canzona::report::bench {

// A run of all plans, and what the views need to describe it.
struct StepReport {
  std::string model;
  Mesh mesh;
  std::string rule;
  PrecisionChoice precision;
  std::string transport;  // "thread", "mpi", "tcp" or "nccl"
  StepTrialRequest trial;
  double comm_ratio = 0;  // 0: links are not scaled
  StepBench bench;
  bool audited = false;

  // Names two plans with different parameters or states that must have the
  // same; empty if there are none.
  std::string disagreement() const {
    return bench.disagreement(trial.gradients, trial.runtime.wire);
  }
};

// Lists warnings that readers of the figures must know.
std::vector<std::string> warnings_of(const StepReport& report);

Document step_view(const StepReport& report);

}  // namespace canzona::report::bench

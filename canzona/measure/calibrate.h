// Measures what rules cost on this machine and writes the table that the
// planner reads (docs/cost_table.md).
//
//   CalibrateRequest request = cpu_calibration("fp32");
//   request.num_ranks = 16;   // as many as will run, all at once
//   std::string table = calibrate(request, machine_info(), progress);
#pragma once

#include <string>
#include <vector>

#include "canzona/measure/machine.h"
#include "canzona/measure/matrix_seconds.h"
#include "canzona/measure/transform.h"
#include "canzona/plan/plan.h"

namespace canzona {

struct CalibrateRequest {
  std::string device = "cpu";
  std::string precision = "fp32";  // of Muon's products
  int rounds = 3;
  // Ranks that measure at the same time, each on a core of its own. Cores share
  // caches and memory, so that one alone is faster than one of many.
  int num_ranks = 1;
  // No rule and algorithm twice; every shape runs the subject's algorithm.
  std::vector<CostSubject> subjects = {};
  std::string date = {};  // "2026-03-31"
};

// All rules: Muon's forms and AdamW on many shapes, the rules with factors on a
// few. On a GPU the shapes of language models, in batches that fill it.
CalibrateRequest cpu_calibration(const std::string& precision);
CalibrateRequest gpu_calibration(const std::string& precision);
// The rule of a plan, with its options, on the shapes that it has. AdamW, if it
// has none: a table holds something.
CalibrateRequest calibration_for(const Plan& plan);

// The table as JSON. UsageError if the BLAS runs kernels that do not fit this
// CPU, whose times say nothing about the machine, and if several ranks would
// share a GPU.
std::string calibrate(const CalibrateRequest& request,
                      const MachineInfo& machine, const Progress& progress);

}  // namespace canzona

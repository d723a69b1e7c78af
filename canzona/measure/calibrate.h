// Measures the cost of rules on this machine and makes the cost table that the
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
  std::string precision = "fp32";  // Muon's products
  int rounds = 3;
  // The number of ranks that measure at the same time, each on its own core.
  // Cores share caches and memory, so a single one is faster than one of many.
  int num_ranks = 1;
  // No pair of rule and algorithm may occur twice; every shape must run the
  // subject's algorithm.
  std::vector<CostSubject> subjects = {};
  std::string date = {};  // "2026-03-31"
};

// Return requests for all rules: Muon's forms and AdamW on many shapes, rules
// with factors on a few. On a GPU these are shapes of language models, in
// batches that fill it.
CalibrateRequest cpu_calibration(const std::string& precision);
CalibrateRequest gpu_calibration(const std::string& precision);
// Returns a request for the rule of a plan, with its options, on the plan's
// shapes; for AdamW if there are none, because a table must not be empty.
CalibrateRequest calibration_for(const Plan& plan);

// Returns the table as JSON. Throws UsageError if the BLAS runs kernels that do
// not fit this CPU, because their times would be meaningless, or if several
// ranks would share a GPU.
std::string calibrate(const CalibrateRequest& request,
                      const MachineInfo& machine, const Progress& progress);

}  // namespace canzona

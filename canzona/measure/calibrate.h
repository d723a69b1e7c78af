// Measures the cost of rules on this machine and makes the cost table that the
// planner reads (docs/cost_table.md).
//
//   CalibrateRequest request = cpu_calibration("fp32");
//   request.num_ranks = 16;   // as many as will run, all at once
//   std::string table = calibrate(request, machine_info(), progress);
#pragma once

#include <string>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/machine.h"
#include "canzona/plan/plan.h"
#include "canzona/rules/facts.h"

namespace canzona::measure {

// Measures how long a rule takes for one matrix and how fast element-wise
// passes are, while all ranks of a group do the same.
//
//   MatrixSeconds m = measure_on_cpu(world, subject, {512, 1024}, 3);
//   double seconds_of_one = m.seconds / m.batch;
//
// All ranks must call, and all get the same answer. Caches are cold: a rank
// cycles through more matrices than they hold, as it does in a step.

// A rule, and shapes on which it runs the same algorithm.
struct CostSubject {
  std::string rule;
  RuleOptions options;
  std::vector<MatrixShape> shapes;
};

struct MatrixSeconds {
  MatrixShape shape;
  int64_t batch = 1;           // matrices that ran in sequence or at once
  double seconds = 0;          // for a step of all matrices
  double refresh_seconds = 0;  // extra time of a refresh; 0: none
};

// A single rank returns the minimum over `rounds`, several return their median:
// what ranks take from each other is part of the answer.
MatrixSeconds measure_on_cpu(Communicator& world, const CostSubject& subject,
                             MatrixShape shape, int rounds);
MatrixSeconds measure_on_gpu(Engine& engine, const CostSubject& subject,
                             MatrixShape shape, int rounds);

// Returns bytes per second on one core for the passes that a step makes beside
// the rule: scaling and checking gradients, AdamW.
double measure_element_rate(Communicator& world);

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

// Return requests for all rules of the table, each with the options that its
// entry names: on many shapes, or on a few if the rule refreshes. On a GPU
// these are shapes of language models, in batches that fill it.
CalibrateRequest cpu_calibration(const std::string& precision);
CalibrateRequest gpu_calibration(const std::string& precision);
// Returns a request for the rule of a plan, with its options, on the plan's
// shapes; for kElementRule if there are none, because a table must not be
// empty.
CalibrateRequest calibration_for(const Plan& plan);

// Returns the table as JSON. Throws UsageError if the BLAS runs kernels that do
// not fit this CPU, because their times would be meaningless, or if several
// ranks would share a GPU.
std::string calibrate(const CalibrateRequest& request,
                      const MachineInfo& machine, const Progress& progress);

}  // namespace canzona::measure

// Measures how long a whole step of a rule takes on one device that owns all
// tensors.
//
//   RuleStepRequest request{.rule = "muon", .device = "cuda"};
//   request.tensors = {{2048, 6144}, {2048, 2048}};
//   RuleStep step = measure_rule_step(request, progress);
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "canzona/measure/clock.h"
#include "canzona/measure/machine.h"
#include "canzona/rules/facts.h"
#include "canzona/rules/rule.h"

namespace canzona::bench {

// Measures how long Newton–Schulz takes in each form and precision, and how
// accurate it is.
//
//   TransformRequest request{.shape = {2048, 6144}, .batch = 4};
//   for (const TransformRow& row : measure_transform(request)) …
//
// All forms work on the same input, one after the other in every round, so that
// disturbances affect all of them; the minimum counts.

struct TransformRequest {
  MatrixShape shape;
  int64_t batch = 1;
  std::vector<std::string> algorithms = {"standard", "symmetric", "gram"};
  std::vector<std::string> precisions = {"fp32", "bf16"};
  std::string device = "cpu";
  int num_threads = 1;  // on the CPU
  int rounds = 10;
  RuleOptions options;  // of kTransformRule
};
// The rule whose transform is Newton–Schulz.
inline constexpr const char* kTransformRule = "muon";

struct TransformRow {
  std::string algorithm;
  std::string precision;
  double seconds = 0;        // for the whole batch
  double error_vs_fp64 = 0;  // |O - O64|_F / |O64|_F of the first matrix
};

// Throws UsageError if the shape is empty or does not fit in memory.
void check_transform(const TransformRequest& request);

// Checks the request first.
std::vector<TransformRow> measure_transform(const TransformRequest& request,
                                            const Progress& progress);

// Returns the minimum time of a row: the flops of its form at the best rate
// measured for such products, or reading the input and writing the result once,
// whichever is more.
double transform_floor(const TransformRequest& request, const TransformRow& row,
                       const MachineRates& rates);

struct RuleStepRequest {
  std::string rule = kDefaultRule;
  RuleOptions options;
  std::string device = "cpu";
  std::vector<Dims> tensors;
  int rounds = 10;
  int num_engines = 2;   // that share the shapes
  bool graph = true;     // replay captured work if possible
  bool rounded = false;  // also keep weights in bf16
};

struct RuleStep {
  // The time of a step: the mean over a refresh period, using the median of
  // each kind of step.
  double seconds = 0;
  double least_seconds = 0;    // the quickest step
  double median_seconds = 0;   // of all steps
  double refresh_seconds = 0;  // the slowest kind; the same without refreshes
  double host_seconds = 0;     // until the call returns, on an idle device
  std::vector<Engine::StageTime> stages;          // of one ordinary step
  std::vector<Engine::StageTime> refresh_stages;  // of the slowest step in a
                                                  // period
  std::vector<std::pair<std::string, std::string>> algorithms;  // by shape
  double flops = 0;        // per step, mean
  double bytes = 0;        // the minimum that must move
  double peak_tflops = 0;  // for the rule's products
  double copy_bytes_per_second = 0;
  double floor_seconds = 0;  // flops at peak, plus bytes at the copy rate
  int64_t memory_bytes = 0;  // weights, gradients, states
  std::string device;
  std::string precision = "fp32";  // of the rule's products, as executed
};

// Throws UsageError if the tensors do not fit in device memory.
RuleStep measure_rule_step(const RuleStepRequest& request,
                           const Progress& progress);

}  // namespace canzona::bench

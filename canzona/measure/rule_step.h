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

#include "canzona/measure/transform.h"
#include "canzona/rules/rule.h"

namespace canzona {

struct RuleStepRequest {
  std::string rule = "muon";
  RuleOptions options;
  std::string device = "cpu";
  std::vector<Dims> tensors;
  int rounds = 10;
  int num_engines = 2;   // that share out the shapes
  bool graph = true;     // repeat captured work where the device can
  bool rounded = false;  // keep the weights in bf16, too
};

struct RuleStep {
  // The time of a step: the mean over a period of refreshes of the median of
  // its kind.
  double seconds = 0;
  double least_seconds = 0;    // the quickest step
  double refresh_seconds = 0;  // the slowest kind; equal without refreshes
  double host_seconds = 0;     // until the call returns, the device being idle
  std::vector<Engine::StageTime> stages;          // of one plain step
  std::vector<Engine::StageTime> refresh_stages;  // of the slowest in a period
  std::vector<std::pair<std::string, std::string>> algorithms;  // by shape
  double flops = 0;        // of a step, the mean
  double bytes = 0;        // the least that must move
  double peak_tflops = 0;  // of the products that the rule uses
  double copy_bytes_per_second = 0;
  double floor_seconds = 0;  // flops at the peak, then bytes at a copy's rate
  int64_t memory_bytes = 0;  // weights, gradients, states
  std::string device;
  std::string precision = "fp32";  // of the rule's products, as they ran
};

// UsageError if the tensors do not fit the device's memory.
RuleStep measure_rule_step(const RuleStepRequest& request,
                           const Progress& progress);

}  // namespace canzona

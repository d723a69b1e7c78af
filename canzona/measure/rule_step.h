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
  int num_engines = 2;   // that share the shapes
  bool graph = true;     // replay captured work if possible
  bool rounded = false;  // also keep weights in bf16
};

struct RuleStep {
  // The time of a step: the mean over a refresh period, using the median of
  // each kind of step.
  double seconds = 0;
  double least_seconds = 0;    // the quickest step
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

}  // namespace canzona

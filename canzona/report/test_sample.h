// Synthetic plans for the tests of the report: small, quick, and independent of
// the planner, so that a test of the page fails only because of the page.
#pragma once

#include <cstdint>
#include <string>

#include "canzona/report/shown_plan.h"

namespace canzona::report {

struct Sample {
  Mesh mesh{.dp = 4, .tp = 2};
  int32_t layers = 8;
  int32_t experts = 0;  // per layer, in addition to the dense tensors
  std::string strategy = "balanced";
  bool crowded = false;  // early homes get more than their share
  bool matrices = true;  // false: AdamW updates everything
  int64_t memory_cap_bytes = 0;
  std::string first_name = {};  // of the first tensor, unless empty
};

ReportPlan make_sample(const Sample& sample);

// Returns several strategies for one sample, as `canzona compare` shows them.
std::vector<ReportPlan> compare_sample(Sample sample);

}  // namespace canzona::report

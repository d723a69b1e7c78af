// Why a matrix has the owner it has: the strategy's own reason, and what the
// next best rank would have meant.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/report/report_plan.h"

namespace canzona {

// Loads are ticks over a period.
struct OwnerStory {
  std::vector<int32_t> owners;  // ranks of the world
  bool repeated = false;        // every one of them computes the whole update
  double load_with = 0;         // of the (first) owner, as planned
  double load_without = 0;      // the same without this matrix
  double mean = 0;              // over all ranks of the world
  double makespan = 0;
  double bound = 0;
  int32_t other_rank = -1;  // the least loaded rank that could own it instead
  double other_load = 0;    // of that rank, with this matrix
  std::vector<std::string> reasons;  // sentences
};

OwnerStory tell_owner(const ReportPlan& shown, int32_t matrix);

}  // namespace canzona

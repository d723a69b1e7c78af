// Plans: refused with a UsageError, or validated, predicted and judged in
// bounded time whatever they say. A sound plan is also simulated.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/sim/plan_iteration.h"
#include "fuzz/other_numbers.h"

namespace {

// A few tokens on ranks of nominal speed.
canzona::sim::Workload small_workload(const canzona::Model& model) {
  canzona::sim::Workload workload;
  workload.compute = {.tokens = 64,
                      .length = 16,
                      .width = 32,
                      .flops_per_second = 1e12,
                      .experts_per_token = model.num_experts > 0 ? 1 : 0};
  workload.num_micro_batches = 2;
  workload.hidden = 32;
  return workload;
}

// The stored figures are rarely right after a mutation, and a plan with wrong
// ones goes no further: here they are put right first.
void look_at(canzona::Plan plan) {
  const std::vector<canzona::RankCost> ranks = canzona::predict(plan);
  if (ranks.size() != static_cast<size_t>(plan.mesh.world())) std::abort();
  canzona::validate(plan);
  canzona::plan::summarize(plan);
  if (!canzona::validate(plan).empty()) return;
  canzona::plan::measure_balance(plan);
  canzona::sim::predict_iteration(plan, small_workload(plan.model));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    look_at(canzona::plan_from_json(text, "plan.json").plan);
  } catch (const canzona::UsageError&) {
  }
  return 0;
}

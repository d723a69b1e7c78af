// Plans: refused with a UsageError, or validated, predicted and judged in
// bounded time whatever they say. A sound plan is also simulated.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/predict/metrics.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/validate/validate.h"
#include "canzona/sim/plan_iteration.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

// Numbers at which something may end, begin or overflow.
constexpr std::array<const char*, 20> kNumbers{"-1",
                                               "0",
                                               "1",
                                               "2",
                                               "3",
                                               "4",
                                               "5",
                                               "8",
                                               "16",
                                               "64",
                                               "1000",
                                               "10000",
                                               "1048576",
                                               "1048577",
                                               "2147483647",
                                               "0.999",
                                               "1e-300",
                                               "1e300",
                                               "1099511627776",
                                               "2305843009213693952"};

// Puts another number in the place of one that follows `start`.
std::string with_other_number(std::string text, size_t start, uint32_t choice) {
  const size_t at = text.find_first_of("0123456789", start);
  if (at == std::string::npos) return text;
  const size_t end = text.find_first_not_of("0123456789", at);
  text.replace(at, std::min(end, text.size()) - at,
               kNumbers[choice % kNumbers.size()]);
  return text;
}

// A few tokens on ranks of nominal speed.
canzona::Workload small_workload(const canzona::Model& model) {
  canzona::Workload workload;
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
  canzona::summarize(plan);
  if (!canzona::validate(plan).empty()) return;
  canzona::measure_balance(plan);
  canzona::predict_iteration(plan, small_workload(plan.model));
}

}  // namespace

// Most mutations of bytes are not even JSON; every second one is of numbers.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size,
                                          size_t max_size, unsigned int seed) {
  if (seed % 2 == 0 || size == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<const char*>(data), size);
  for (uint32_t random = seed; random % 4 != 0; random = random / 4) {
    const uint32_t mixed = random * 2654435761u;
    text = with_other_number(std::move(text), mixed % size, mixed >> 20);
  }
  size = std::min(text.size(), max_size);
  std::memcpy(data, text.data(), size);
  return size;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    look_at(canzona::plan_from_json(text, "plan.json").plan);
  } catch (const canzona::UsageError&) {
  }
  return 0;
}

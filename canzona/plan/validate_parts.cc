#include "canzona/plan/validate_parts.h"

#include "canzona/base/text.h"
#include "canzona/plan/parts.h"
#include "canzona/plan/summary.h"
#include "canzona/plan/validate.h"

namespace canzona {
namespace {

// What a part has from the whole.
bool belongs(const Plan& whole, size_t number) {
  const Plan& part = whole.parts[number];
  const Plan expected = undecided_part(whole, static_cast<int32_t>(number));
  return part.model == expected.model && part.mesh == expected.mesh &&
         part.rule == expected.rule &&
         part.rule_options == expected.rule_options &&
         part.options == expected.options && part.costs == expected.costs &&
         part.cost_basis == expected.cost_basis &&
         part.traffic == expected.traffic &&
         part.place.ep == expected.place.ep &&
         part.place.e == expected.place.e &&
         part.place.phase == expected.place.phase;
}

}  // namespace

std::vector<std::string> validate_in_parts(const Plan& plan) {
  std::vector<std::string> violations;
  if (std::ssize(plan.parts) != num_parts(plan.mesh))
    return {cat("the plan has ", plan.parts.size(), " parts, expected ",
                num_parts(plan.mesh))};
  for (size_t i = 0; i < plan.parts.size(); ++i) {
    const std::string name = part_name(plan, i);
    if (!belongs(plan, i))
      violations.push_back(cat(name, ": not a part of this plan"));
    for (const std::string& violation : validate(plan.parts[i]))
      violations.push_back(cat(name, ": ", violation));
  }
  if (!violations.empty()) return violations;
  const std::vector<RankCost> ranks = predict(plan);
  if (summarize(plan, ranks) != plan.summary)
    violations.push_back("the stored predictions are not those of this plan");
  check_memory_cap(plan.options.memory_cap_bytes, ranks, 0, violations);
  return violations;
}

void check_memory_cap(int64_t cap, const std::vector<RankCost>& ranks,
                      int64_t activations,
                      std::vector<std::string>& violations) {
  if (cap == 0) return;
  size_t above = 0, worst = 0;
  for (size_t r = 0; r < ranks.size(); ++r) {
    above += ranks[r].memory.total().value() > cap - activations;
    if (ranks[r].memory.total() > ranks[worst].memory.total()) worst = r;
  }
  if (above == 0) return;
  const RankMemory& m = ranks[worst].memory;
  auto size = [](Bytes bytes) { return human_bytes(bytes.value()); };
  violations.push_back(cat(
      above, " of ", ranks.size(), " ranks need more memory than the cap ",
      "of ", human_bytes(cap), "; most is rank ", worst, " with ",
      size(m.total() + Bytes(activations)), ": parameters ", size(m.parameters),
      ", gradients ", size(m.gradients), ", master ", size(m.master),
      ", states ", size(m.states), ", buffers ", size(m.buffers),
      m.pools.value() > 0 ? cat(", pools ", size(m.pools)) : "",
      activations > 0 ? cat(", activations ", human_bytes(activations)) : ""));
}

}  // namespace canzona

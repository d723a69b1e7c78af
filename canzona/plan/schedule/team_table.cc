#include "canzona/plan/schedule/team_table.h"

#include "canzona/plan/schedule/team_strips.h"

namespace canzona {

TeamCosts& TeamTable::costs() {
  if (!costs_) {
    rule_ = make_rule_facts(part_.rule, part_.rule_options);
    costs_ = std::make_unique<TeamCosts>(*rule_, part_.cost_basis,
                                         part_.options.links);
  }
  return *costs_;
}

TeamSize TeamTable::of(size_t matrix) {
  const int32_t ranks = size(matrix);
  if (ranks == 1) return whole_matrix(part_.costs[matrix].every_step.value());
  const auto key = std::pair(shape(matrix), ranks);
  auto found = known_.find(key);
  if (found == known_.end())
    found =
        known_.emplace(key, costs().team(key.first, part_.costs[matrix], ranks))
            .first;
  return found->second;
}

const StripFacts& TeamTable::strips(size_t matrix) {
  return costs().strips(shape(matrix));
}

Rectangle TeamTable::rectangle(size_t matrix, int32_t member) {
  const int32_t ranks = size(matrix);
  if (ranks == 1) return {0, shape(matrix).rows, 0, shape(matrix).cols};
  return strips_of_member(shape(matrix), strips(matrix).strips, ranks, member);
}

}  // namespace canzona

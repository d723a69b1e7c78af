#include "canzona/plan/schedule/team_table.h"

#include <algorithm>

#include "canzona/base/index.h"
#include "canzona/plan/schedule/team_strips.h"

namespace canzona {

int64_t MatrixShare::elements() const {
  int64_t sum = 0;
  for (const Rectangle& rectangle : rectangles) sum += rectangle.elements();
  return sum;
}

// A list that is too long or too short is none of a valid plan.
std::vector<MatrixShare> shares_of_blocks(const MatrixBlocks& blocks,
                                          const MatrixCost& whole,
                                          std::span<const int32_t> owners) {
  const auto count = std::min<int64_t>(std::ssize(owners), blocks.count());
  std::vector<MatrixShare> out;
  std::map<int32_t, size_t> place;  // of a rank
  for (int32_t b = 0; b < count; ++b) {
    const auto [at, is_new] = place.try_emplace(owners[index(b)], out.size());
    if (is_new) out.emplace_back().t = owners[index(b)];
    MatrixShare& share = out[at->second];
    const MatrixCost more = blocks.cost(whole, b);
    share.cost.every_step += more.every_step;
    share.cost.refresh += more.refresh;
    share.rectangles.push_back(blocks.at(b));
    share.blocks.push_back(b);
  }
  return out;
}

const RuleFacts& TeamTable::rule() {
  if (!rule_) rule_ = make_rule_facts(part_.rule, part_.rule_options);
  return *rule_;
}

TeamCosts& TeamTable::costs() {
  if (!costs_)
    costs_ = std::make_unique<TeamCosts>(rule(), part_.cost_basis,
                                         part_.options.links);
  return *costs_;
}

const MatrixBlocks& TeamTable::blocks(size_t matrix) {
  const auto found = blocks_.find(shape(matrix));
  if (found != blocks_.end()) return found->second;
  return blocks_.emplace(shape(matrix), MatrixBlocks(rule(), shape(matrix)))
      .first->second;
}

bool TeamTable::is_in_blocks(size_t matrix) {
  return is_shared(matrix) && blocks(matrix).fall_apart();
}

std::vector<MatrixShare> TeamTable::shares(size_t matrix) {
  if (is_in_blocks(matrix))
    return shares_of_blocks(blocks(matrix), part_.costs[matrix],
                            part_.owners[matrix]);
  std::vector<MatrixShare> out;
  const TeamSize team = of(matrix);
  for (const int32_t t : part_.owners[matrix]) {
    const auto member = static_cast<int32_t>(out.size());
    out.push_back(
        {t,
         {Ticks(team_ticks(team, member)), part_.costs[matrix].refresh},
         {rectangle(matrix, member)},
         {}});
  }
  return out;
}

MatrixCost TeamTable::cost(size_t matrix, int32_t block) {
  const MatrixCost& whole = part_.costs[matrix];
  return block < 0 ? whole : blocks(matrix).cost(whole, block);
}

bool has_strips_shared(const PlanPart& part) {
  TeamTable teams(part);
  for (size_t m = 0; m < part.owners.size(); ++m)
    if (teams.is_team(m)) return true;
  return false;
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

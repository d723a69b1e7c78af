#include "canzona/plan/schedule/strip_exchange.h"

#include <algorithm>

#include "canzona/base/index.h"
#include "canzona/plan/schedule/team_strips.h"

namespace canzona {
namespace {

// Returns the number of strips if those who compute a matrix get pieces of it
// from others and its rule takes strips one by one; else 0.
int32_t strips_of(const PlanPart& part, TeamCosts& costs, int32_t m) {
  const Matrix& matrix = part.matrices[index(m)];
  const bool is_cut =
      part.model.tensors[index(matrix.tensor)].cut != Cut::kNone &&
      part.grid.tp_ranks() > 1;
  if (!is_cut) return 0;
  const StripFacts& facts = costs.strips({matrix.rows, matrix.cols});
  return facts.strips > 1 && facts.one_by_one ? facts.strips : 0;
}

int64_t elements_of(const PlanPart& part, int32_t m) {
  return part.matrices[index(m)].rows * part.matrices[index(m)].cols;
}

std::vector<RoundMatrix> as_the_plan_has_them(
    const PlanPart& part, TeamTable& teams, std::span<const int32_t> matrices) {
  std::vector<RoundMatrix> out;
  for (const int32_t m : matrices)
    out.push_back({m, part.owners[index(m)], teams.is_team(index(m))});
  return out;
}

}  // namespace

bool goes_by_strips(const PlanPart& part, int32_t round, int32_t num_rounds) {
  return part.options.exchange == ExchangeBy::kStrips &&
         (round == 0 || round + 1 == num_rounds);
}

StripExchange::StripExchange(const PlanPart& part, TeamTable& teams,
                             std::span<const int32_t> matrices)
    : StripExchange(part, teams.costs(),
                    as_the_plan_has_them(part, teams, matrices)) {}

StripExchange::StripExchange(const PlanPart& part, TeamCosts& costs,
                             std::span<const RoundMatrix> matrices)
    : num_planes_(part.grid.tp) {
  for (const RoundMatrix& of : matrices)
    if (of.is_team) return;
  for (const RoundMatrix& of : matrices) {
    if (of.owners.size() != 1) continue;
    const int32_t m = of.matrix;
    const int32_t strips = strips_of(part, costs, m);
    if (strips == 0) continue;
    const int32_t owner = of.owners[0];
    const auto found = std::ranges::find(chosen_, owner, &Chosen::owner);
    if (found == chosen_.end())
      chosen_.push_back({owner, m, strips});
    else if (elements_of(part, m) > elements_of(part, found->matrix))
      *found = {owner, m, strips};
  }
  for (const Chosen& chosen : chosen_) size_ = std::max(size_, chosen.strips);
}

int32_t StripExchange::strips(int32_t matrix) const {
  const auto found = std::ranges::find(chosen_, matrix, &Chosen::matrix);
  return found == chosen_.end() ? 0 : found->strips;
}

int32_t StripExchange::exchange_of(int32_t matrix, int32_t strip) const {
  const auto found = std::ranges::find(chosen_, matrix, &Chosen::matrix);
  const int32_t strips = found->strips;
  const int32_t first = found->owner * strips / num_planes_;
  return (strip - first + strips) % strips * size_ / strips;
}

Rectangle strip_rectangle(const PlanPart& part, int32_t matrix, int32_t strips,
                          int32_t strip) {
  const Matrix& m = part.matrices[index(matrix)];
  return strips_of_member({m.rows, m.cols}, strips, strips, strip);
}

bool may_exchange_strips(const Plan& plan) {
  for (const PlanPart& part : plan.parts) {
    TeamTable teams(part);
    for (int32_t m = 0; m < std::ssize(part.matrices); ++m)
      if (!part.owners[index(m)].empty() &&
          strips_of(part, teams.costs(), m) > 0)
        return true;
  }
  return false;
}

}  // namespace canzona

#include "canzona/plan/schedule/strip_exchange.h"

#include <algorithm>

#include "canzona/base/index.h"
#include "canzona/plan/schedule/team_strips.h"

namespace canzona {
namespace {

// Returns the number of strips if a matrix has one owner, who gets pieces of it
// from others, and a rule that takes strips one by one; else 0.
int32_t strips_of(const PlanPart& part, TeamTable& teams, int32_t m) {
  const Matrix& matrix = part.matrices[index(m)];
  const bool is_cut =
      part.model.tensors[index(matrix.tensor)].cut != Cut::kNone &&
      part.grid.tp_ranks() > 1;
  if (!is_cut || part.owners[index(m)].size() != 1) return 0;
  const StripFacts& facts = teams.strips(index(m));
  return facts.strips > 1 && facts.one_by_one ? facts.strips : 0;
}

int64_t elements_of(const PlanPart& part, int32_t m) {
  return part.matrices[index(m)].rows * part.matrices[index(m)].cols;
}

}  // namespace

bool goes_by_strips(const PlanPart& part, int32_t round, int32_t num_rounds) {
  return part.options.exchange == ExchangeBy::kStrips &&
         (round == 0 || round + 1 == num_rounds);
}

StripExchange::StripExchange(const PlanPart& part, TeamTable& teams,
                             std::span<const int32_t> matrices)
    : num_planes_(part.grid.tp) {
  for (const int32_t m : matrices)
    if (part.owners[index(m)].size() > 1) return;
  for (const int32_t m : matrices) {
    const int32_t strips = strips_of(part, teams, m);
    if (strips == 0) continue;
    const int32_t owner = part.owners[index(m)][0];
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
      if (strips_of(part, teams, m) > 0) return true;
  }
  return false;
}

}  // namespace canzona

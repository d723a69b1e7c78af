#include "canzona/plan/placed/placed_draft.h"

#include <tuple>
#include <utility>

#include "canzona/base/equal_batches.h"

namespace canzona {

PlacedDraft::PlacedDraft(const PlacedPlan& the_plan, int32_t the_rank,
                         int64_t width)
    : plan(the_plan),
      rank(the_rank),
      width_(std::max<int64_t>(width, 1)),
      facts_(group_facts(the_plan.groups)) {
  out.rank = rank;
  out.states_of.resize(plan.tensors.size());
  find_groups();
}

int32_t PlacedDraft::add_group(const std::vector<int32_t>& ranks) {
  if (ranks.size() < 2) return -1;
  const auto [place, added] =
      group_number_.try_emplace(ranks, static_cast<int32_t>(out.groups.size()));
  if (added) out.groups.push_back(ranks);
  return place->second;
}
// The same list on every rank.
void PlacedDraft::find_groups() {
  for (const PlacedClass& c : plan.classes) {
    for (const auto& line : c.lines) add_group(line);
    for (const auto& set : c.replicas) add_group(set);
  }
}

int32_t PlacedDraft::add_memory(int64_t elements) {
  out.memories.push_back(elements);
  return static_cast<int32_t>(out.memories.size()) - 1;
}

int64_t PlacedDraft::most_in_batch(int64_t rows, int64_t cols) const {
  constexpr int64_t kMostElements = int64_t{1} << 28;
  const int64_t each = std::max<int64_t>(rows * cols, 1);
  return std::clamp<int64_t>(kMostElements / each, 1, width_);
}

std::vector<PlacedBatch> PlacedDraft::batches_of(
    std::vector<OwnedMatrix> owned) {
  using Likeness =
      std::tuple<int64_t, int64_t, int32_t, int32_t, ParameterDtype>;
  std::vector<Likeness> alike;
  for (const OwnedMatrix& one : owned) {
    const PlacedMatrix& it = matrix(one.matrix);
    alike.emplace_back(it.rows, it.cols, it.phase, tensor(it.tensor).group,
                       tensor(it.tensor).dtype);
  }
  std::vector<PlacedBatch> batches;
  for (const std::vector<size_t>& places :
       equal_batches(alike, [this](const Likeness& l) {
         return most_in_batch(std::get<0>(l), std::get<1>(l));
       })) {
    const auto& [rows, cols, phase, group, dtype] = alike[places[0]];
    PlacedBatch& batch = batches.emplace_back();
    batch.group = group;
    batch.dtype = dtype;
    batch.dims = {rows, cols};
    batch.phase = phase;
    for (size_t at : places) batch.members.push_back(std::move(owned[at]));
    add_owner_states(batch);
  }
  return batches;
}

void PlacedDraft::add_owner_states(PlacedBatch& batch) {
  const auto count = std::ssize(batch.members);
  for (const StateFact& fact :
       facts_[index(batch.group)]->tensor_states(batch.dims)) {
    if (fact.lives != Lives::kWithOwner) continue;
    batch.states.push_back(add_memory(count * fact.elements()));
    for (int64_t i = 0; i < count; ++i) {
      const int32_t m = batch.members[index(i)].matrix;
      out.states.push_back({.name = fact.name,
                            .tensor = matrix(m).tensor,
                            .matrix = m,
                            .shape = fact.shape,
                            .initially = fact.initially,
                            .memory = batch.states.back(),
                            .at = i * fact.elements()});
    }
  }
}

}  // namespace canzona

#include "canzona/plan/placed/placed_basis.h"

#include "canzona/base/index.h"

namespace canzona {
namespace {

RanksOfClass ranks_of_class(const PlacedClass& c, int32_t world) {
  RanksOfClass out{std::vector<int32_t>(index(world), -1),
                   std::vector<int32_t>(index(world), -1)};
  for (size_t i = 0; i < c.lines.size(); ++i)
    for (const int32_t rank : c.lines[i])
      out.line[index(rank)] = static_cast<int32_t>(i);
  for (size_t i = 0; i < c.replicas.size(); ++i)
    for (const int32_t rank : c.replicas[i])
      out.set[index(rank)] = static_cast<int32_t>(i);
  return out;
}

}  // namespace

PlacedBasis::PlacedBasis(const PlacedPlan& plan)
    : plan_(plan),
      pieces_(stored_pieces(plan)),
      holders_(plan, pieces_),
      kinds_(step_kinds(plan)) {
  for (const auto& facts : group_facts(plan.groups))
    fields_.push_back(facts->gather_fields());
  for (const PlacedClass& c : plan.classes)
    ranks_.push_back(ranks_of_class(c, plan.world));
}

int64_t PlacedBasis::work_of(size_t matrix) const {
  const PlacedMatrix& m = plan_.matrices[matrix];
  return kinds_.period_load(m.cost, plan_.tensors[index(m.tensor)].group,
                            m.phase);
}

int32_t PlacedBasis::owner_of(size_t item) const {
  if (is_matrix(item)) return plan_.matrices[item].owner;
  const RanksOfClass& ranks = ranks_of(class_of(item));
  for (const Holder& holder : holders_[item])
    if (ranks.line[index(holder.rank)] == elements(item).line)
      return holder.rank;
  return -1;
}

int32_t PlacedBasis::line_of(size_t item) const {
  if (!is_matrix(item)) return elements(item).line;
  return ranks_of(class_of(item)).line[index(plan_.matrices[item].owner)];
}

}  // namespace canzona

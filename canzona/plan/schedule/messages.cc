#include "canzona/plan/schedule/messages.h"

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/pools.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona {
namespace {

// The layouts of buckets on the ranks of a group, by their number in it.
struct GroupPlacers {
  std::vector<BucketPlacer> placers;
  size_t own = 0;
};

GroupPlacers placers_of_group(const PlanPart& part, int32_t rank,
                              Resting what) {
  const RankGroup ranks =
      group_of(part, rank,
               what == Resting::kParameters ? GroupKind::kParameters
                                            : GroupKind::kGradients);
  GroupPlacers group{{}, index(ranks.number_of(rank))};
  for (int32_t i = 0; i < ranks.count; ++i)
    group.placers.emplace_back(part, in_grid(part, ranks.rank(i)), what);
  return group;
}

Message message_of(const PlanPart& part, const ModuleTable& table,
                   int32_t bucket, GroupPlacers& group) {
  Message out;
  const Bucket& planned = part.buckets[index(bucket)];
  for (size_t p = 0; p < group.placers.size(); ++p) {
    BucketPlacer& placer = group.placers[p];
    const RankBucket laid = placer.place(bucket, out.num_elements);
    if (p == group.own) out.own_first = out.num_elements;
    if (p == 0)
      out.copies.reserve(group.placers.size() * placer.pieces().size());
    for (const auto& [n, piece] : placer.pieces())
      out.copies.push_back(
          {piece.to,
           table.offset[index(planned.tensors[index(n)])] + piece.from,
           piece.count});
    out.num_elements += laid.all.count;
  }
  out.direct = is_direct(part, planned);
  if (!out.direct) return out;
  for (const ExtentCopy& c : out.copies)
    CANZONA_CHECK_EQ(c.to - out.in_slot(), c.from,
                     "a message that lies otherwise in its slot");
  return out;
}

}  // namespace

ModuleTable::ModuleTable(const PlanPart& part, const Coordinates& at,
                         const FlatLayout& parameters)
    : of_tensor(part.model.tensors.size(), -1),
      offset(of_tensor.size(), 0),
      tensors(index(num_modules(part.model))),
      buckets(tensors.size()) {
  const std::vector<int64_t> elements = module_elements(part, at.stage);
  const int64_t slot = usual_slot(elements);
  for (int64_t of_module : elements) large.push_back(of_module > slot ? 1 : 0);
  std::vector<int64_t> used(tensors.size(), 0);
  for (size_t t = 0; t < of_tensor.size(); ++t) {
    if (parameters.tensors[t].bucket < 0) continue;
    const Tensor& tensor = part.model.tensors[t];
    const int32_t m = module_of(part.model, tensor);
    of_tensor[t] = m;
    offset[t] = used[index(m)];
    used[index(m)] += parameters.tensors[t].count;
    if (!tensor.frozen) tensors[index(m)].push_back(static_cast<int32_t>(t));
  }
  for (size_t b = 0; b < parameters.buckets.size(); ++b) {
    const Bucket& bucket = part.buckets[index(parameters.buckets[b].bucket)];
    if (bucket.tensors.empty()) continue;
    const int32_t m = of_tensor[index(bucket.tensors.front())];
    buckets[index(m)].push_back(static_cast<int32_t>(b));
  }
}

std::vector<Message> messages_of(const PlanPart& part, int32_t rank,
                                 const ModuleTable& table, Resting what) {
  GroupPlacers group = placers_of_group(part, rank, what);
  const Coordinates at = in_grid(part, rank);
  std::vector<Message> messages;
  for (size_t b = 0; b < part.buckets.size(); ++b)
    if (at.holds(part.buffers[index(part.buckets[b].buffer)]))
      messages.push_back(
          message_of(part, table, static_cast<int32_t>(b), group));
  return messages;
}

Staging staging_of(const PlanPart& part, const FlatLayout& layout,
                   const RankBucket& bucket) {
  Staging out;
  if (!layout.staged) return out;
  for (int32_t t : part.buckets[index(bucket.bucket)].tensors) {
    // Frozen tensors have no gradients to exchange.
    if (part.model.tensors[index(t)].frozen) continue;
    for (const ExtentCopy& piece : layout.pieces[index(t)]) {
      out.all.push_back({layout.offset_of(t, piece), piece.to, piece.count});
      for (const Region* region : {&bucket.matrices, &bucket.elements}) {
        const ExtentCopy own = out.all.back().to_within(region->own);
        if (own.count > 0) out.own.push_back(own);
      }
    }
  }
  return out;
}

}  // namespace canzona

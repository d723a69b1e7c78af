#include "canzona/plan/schedule/modules.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/rank_layout.h"

namespace canzona::plan {
namespace {

void add_bucket_bytes(const PlanPart& part, const Bucket& bucket, int32_t rank,
                      PurposeBytes& out) {
  const Buffer& buffer = part.buffers[index(bucket.buffer)];
  BucketPieces pieces(part, bucket);
  for (const BucketCollectives& list :
       {gathers_of(part, rank), scatters_of(part, rank),
        sums_of(part, buffer, rank), publishes_of(part, buffer, rank)})
    for (const BucketCollective& c : list)
      of(out, c.purpose)
          .add(member_bytes(part, ranks_of(part, c, rank), rank, c.kind,
                            pieces.counts(c, rank)),
               element_bytes(part, c));
}

}  // namespace

std::vector<PurposeBytes> module_bytes(const PlanPart& part, int32_t rank) {
  std::vector<PurposeBytes> out(index(num_modules(part.model)));
  const Coordinates at = coordinates_of(part.mesh, rank);
  for (const Bucket& bucket : part.buckets)
    if (at.holds(part.buffers[index(bucket.buffer)]) && !bucket.tensors.empty())
      add_bucket_bytes(part, bucket, rank,
                       out[index(first_module(part, bucket))]);
  return out;
}

std::vector<PurposeBytes> module_bytes(const Plan& plan, int32_t rank) {
  std::vector<PurposeBytes> out(index(num_modules(plan.model)));
  for (const RankInPart& at : parts_of_rank(plan, rank)) {
    const std::vector<PurposeBytes> own =
        module_bytes(plan.parts[index(at.part)], at.rank);
    for (size_t m = 0; m < out.size(); ++m)
      for (size_t p = 0; p < out[m].size(); ++p) out[m][p] += own[m][p];
  }
  return out;
}

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

namespace {

int64_t largest_message(const PlanPart& part, int32_t stage, Resting what) {
  int64_t most = 0;
  for (const Bucket& bucket : part.buckets) {
    if (part.buffers[static_cast<size_t>(bucket.buffer)].stage != stage)
      continue;
    if (!is_direct(part, bucket))
      most = std::max(most, message_elements(part, bucket, what));
  }
  return most;
}

}  // namespace

int32_t slots_at_once(const SettledRequest& request) {
  return is_tied(request.model) && request.mesh.pp == 1 ? 2 : 1;
}

std::vector<int64_t> module_elements(const PlanPart& part, int32_t stage) {
  std::vector<int64_t> sums(static_cast<size_t>(num_modules(part.model)), 0);
  for (const Tensor& tensor : part.model.tensors)
    if (stage_of(part.grid, part.model, tensor) == stage)
      sums[static_cast<size_t>(module_of(part.model, tensor))] +=
          shard_elements(part.grid, tensor);
  return sums;
}

int64_t usual_slot(const std::vector<int64_t>& modules) {
  const int64_t layer =
      modules.size() < 3
          ? 0
          : *std::max_element(modules.begin() + 1, modules.end() - 1);
  return layer > 0 ? layer : std::ranges::max(modules);
}

bool is_direct(const PlanPart& part, const Bucket& bucket) {
  const ZeroSizes& zero = part.options.zero.sizes;
  return bucket.tensors.size() == 1 && zero.z2 == zero.z3 && zero.z2 > 1 &&
         part.traffic != Traffic::kPadded;
}

PoolSizes pool_sizes(const PlanPart& part, int32_t stage) {
  PoolSizes pools;
  if (part.grid.places == 1) return pools;
  const ZeroOptions& zero = part.options.zero;
  const std::vector<int64_t> modules = module_elements(part, stage);
  pools.slot = usual_slot(modules);
  const int64_t most = std::ranges::max(modules);
  if (most > pools.slot) pools.large_slot = most;
  const bool pair = slots_at_once(part) == 2;
  const auto large = static_cast<int32_t>(modules.front() > pools.slot) +
                     static_cast<int32_t>(modules.back() > pools.slot);
  const int32_t at_once = pair ? std::max(2 - large, 1) : 1;
  const int32_t large_at_once = pair ? std::max(large, 1) : 1;
  if (zero.sizes.z3 > 1) {
    pools.gather_slots = at_once;
    pools.large_gather_slots = large_at_once;
  }
  if (zero.sizes.z2 > 1) {
    pools.scatter_slots = at_once;
    pools.large_scatter_slots = large_at_once;
  }
  if (pools.large_slot == 0)
    pools.large_gather_slots = pools.large_scatter_slots = 0;
  pools.parameter_staging = largest_message(part, stage, Resting::kParameters);
  pools.gradient_staging = largest_message(part, stage, Resting::kGradients);
  return pools.ahead(zero.prefetch);
}

PoolSizes PoolSizes::ahead(int32_t prefetch) const {
  PoolSizes out = *this;
  if (gather_slots > 0) out.gather_slots += prefetch;
  if (large_gather_slots > 0) out.large_gather_slots += std::min(prefetch, 1);
  if (scatter_slots > 0)
    out.scatter_slots += std::min(prefetch, kMostScatterAhead);
  return out;
}

int32_t first_module(const PlanPart& part, const Bucket& bucket) {
  int32_t first = num_modules(part.model);
  for (int32_t t : bucket.tensors)
    first = std::min(
        first,
        module_of(part.model, part.model.tensors[static_cast<size_t>(t)]));
  return first;
}

}  // namespace canzona::plan

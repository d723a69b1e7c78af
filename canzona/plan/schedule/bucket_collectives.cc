#include "canzona/plan/schedule/bucket_collectives.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona {

WireBytes& WireBytes::add(const WireBytes& other, int64_t times) {
  sent_intra += times * other.sent_intra;
  sent_inter += times * other.sent_inter;
  received_intra += times * other.received_intra;
  received_inter += times * other.received_inter;
  return *this;
}

WireBytes largest(const WireBytes& a, const WireBytes& b) {
  return {.sent_intra = std::max(a.sent_intra, b.sent_intra),
          .sent_inter = std::max(a.sent_inter, b.sent_inter),
          .received_intra = std::max(a.received_intra, b.received_intra),
          .received_inter = std::max(a.received_inter, b.received_inter)};
}

WireBytes pairwise_bytes(EntryKind kind, int64_t own, const NodeShare& others) {
  const WireBytes own_to_all{.sent_intra = own * others.near_ranks,
                             .sent_inter = own * others.far_ranks,
                             .received_intra = others.near_bytes,
                             .received_inter = others.far_bytes};
  const WireBytes all_to_own{.sent_intra = own_to_all.received_intra,
                             .sent_inter = own_to_all.received_inter,
                             .received_intra = own_to_all.sent_intra,
                             .received_inter = own_to_all.sent_inter};
  if (kind == EntryKind::kReduceScatter) return all_to_own;
  if (kind == EntryKind::kAllReduce) return own_to_all + all_to_own;
  return own_to_all;
}

WireBytes member_bytes(const PlanPart& part, const RankGroup& group,
                       int32_t rank, EntryKind kind,
                       std::span<const int64_t> counts) {
  const int32_t self = group.number_of(rank), node = part.node_of(rank);
  NodeShare others;
  for (int32_t i = 0; i < group.count; ++i) {
    if (i == self) continue;
    const bool near = part.node_of(group.rank(i)) == node;
    (near ? others.near_ranks : others.far_ranks) += 1;
    (near ? others.near_bytes : others.far_bytes) += counts[index(i)];
  }
  return pairwise_bytes(kind, counts[index(self)], others);
}

namespace {

using Tensors = BucketCollective::Tensors;
using Pieces = BucketCollective::Pieces;
using Level = BucketCollective::Level;

GroupKind sum_group(const Buffer& buffer) {
  return buffer.ep >= 0 ? GroupKind::kExperts : GroupKind::kSums;
}

// Returns a collective over the neighbouring homes that share a module's
// slices.
BucketCollective module_collective(EntryKind kind, Level level) {
  const bool gather = kind == EntryKind::kAllGather;
  return {.kind = kind,
          .purpose = gather ? Purpose::kGatherModule : Purpose::kScatterModule,
          .group = gather ? GroupKind::kParameters : GroupKind::kGradients,
          .pieces = Pieces::kKept,
          .level = level};
}

bool has_two_levels(const PlanPart& part, GroupKind group, int32_t rank) {
  return levels_of(part, rank, group).across > 1;
}

// Adds the collective, or its legs if the group sends once per node: a sum
// begins inside the node, a gather or broadcast across nodes.
void add_legs(const PlanPart& part, int32_t rank, BucketCollective c,
              BucketCollectives& out) {
  if (!has_two_levels(part, c.group, rank)) {
    out.push_back(c);
    return;
  }
  const auto add = [&](EntryKind kind, Level level) {
    c.kind = kind;
    c.level = level;
    out.push_back(c);
  };
  switch (c.kind) {
    case EntryKind::kReduceScatter:
      add(EntryKind::kReduceScatter, Level::kInside);
      return add(EntryKind::kReduceScatter, Level::kAcross);
    case EntryKind::kAllReduce:
      add(EntryKind::kReduceScatter, Level::kInside);
      add(EntryKind::kAllReduce, Level::kAcross);
      return add(EntryKind::kAllGather, Level::kInside);
    default:
      add(c.kind, Level::kAcross);
      return add(c.kind, Level::kInside);
  }
}

// Adds sums over a replica's own ranks and then over replicas, or over all of
// them at once (rank_group.h). In the latter case each run is summed in even
// shares, one per replica, and ranks that keep the same run all-gather the
// shares.
void add_sums_of(const PlanPart& part, const Buffer& buffer, int32_t rank,
                 Tensors tensors, BucketCollectives& out) {
  const bool spreads = is_scattered(part.traffic);
  const bool at_once = has_groups(part, GroupKind::kAllGroups);
  if (at_once && spreads) {
    out.push_back({EntryKind::kReduceScatter, Purpose::kSum,
                   GroupKind::kAllGroups, tensors, Pieces::kRunShares});
    out.push_back({EntryKind::kAllGather, Purpose::kSumReplicas,
                   GroupKind::kReplicas, tensors, Pieces::kOwnShares});
    return;
  }
  const bool own = spreads && !adds_everywhere(part);
  if (own)
    add_legs(part, rank,
             {EntryKind::kReduceScatter, Purpose::kSum, sum_group(buffer),
              tensors, Pieces::kRuns},
             out);
  if (at_once || has_groups(part, GroupKind::kReplicas))
    out.push_back({EntryKind::kAllReduce, Purpose::kSumReplicas,
                   at_once ? GroupKind::kAllGroups : GroupKind::kReplicas,
                   tensors, own ? Pieces::kOwnShares : Pieces::kShares});
}

}  // namespace

BucketCollectives gathers_of(const PlanPart& part, int32_t rank) {
  if (part.options.zero.sizes.z3 == 1) return {};
  const EntryKind kind = EntryKind::kAllGather;
  if (!has_two_levels(part, GroupKind::kParameters, rank))
    return {module_collective(kind, Level::kBoth)};
  return {module_collective(kind, Level::kAcross),
          module_collective(kind, Level::kInside)};
}

BucketCollectives scatters_of(const PlanPart& part, int32_t rank) {
  if (part.options.zero.sizes.z2 == 1) return {};
  const EntryKind kind = EntryKind::kReduceScatter;
  if (!has_two_levels(part, GroupKind::kGradients, rank))
    return {module_collective(kind, Level::kBoth)};
  return {module_collective(kind, Level::kInside),
          module_collective(kind, Level::kAcross)};
}

BucketCollectives sums_of(const PlanPart& part, const Buffer& buffer,
                          int32_t rank) {
  BucketCollectives out;
  if (!is_scattered(part.traffic) && !has_groups(part, GroupKind::kAllGroups))
    add_legs(part, rank,
             {EntryKind::kAllReduce, Purpose::kSum, sum_group(buffer),
              Tensors::kAll, Pieces::kShares},
             out);
  add_sums_of(part, buffer, rank, Tensors::kMatrices, out);
  add_sums_of(part, buffer, rank, Tensors::kElements, out);
  return out;
}

BucketCollectives publishes_of(const PlanPart& part, const Buffer& buffer,
                               int32_t rank) {
  if (part.traffic == Traffic::kAllReduce) return {};
  const GroupKind group = has_groups(part, GroupKind::kPublish)
                              ? GroupKind::kPublish
                              : sum_group(buffer);
  const EntryKind matrices = part.traffic == Traffic::kBroadcast
                                 ? EntryKind::kBroadcast
                                 : EntryKind::kAllGather;
  BucketCollectives out;
  add_legs(part, rank, {matrices, Purpose::kPublish, group, Tensors::kMatrices},
           out);
  add_legs(
      part, rank,
      {EntryKind::kAllGather, Purpose::kPublish, group, Tensors::kElements},
      out);
  return out;
}

RankGroup ranks_of(const PlanPart& part, const BucketCollective& c,
                   int32_t rank) {
  const RankGroup group = group_of(part, rank, c.group);
  if (c.level == Level::kBoth) return group;
  const Levels levels = levels_of(part, group);
  return c.level == Level::kAcross ? across_level(group, levels, rank)
                                   : inside_level(group, levels, rank);
}

int64_t element_bytes(const PlanPart& part, const BucketCollective& c) {
  const bool parameters =
      c.purpose == Purpose::kGatherModule || c.purpose == Purpose::kPublish;
  return parameters ? size_of(part.options.parameters) : kBytesPerFp32;
}

std::vector<int64_t> even_shares(int64_t elements, int32_t count) {
  std::vector<int64_t> shares;
  shares.reserve(index(count));
  for (int64_t i = 0; i < count; ++i)
    shares.push_back(elements * (i + 1) / count - elements * i / count);
  return shares;
}

std::vector<int64_t> BucketPieces::counts(const BucketCollective& c,
                                          int32_t rank) {
  switch (c.pieces) {
    case Pieces::kKept:
      return at_level(c, rank, kept(c, rank));
    case Pieces::kRuns:
      return at_level(c, rank, runs_of_group(c, rank));
    case Pieces::kShares:
      return shares_of_all(c, rank);
    case Pieces::kOwnShares:
      return even_shares(own_run(c, rank), ranks_of(part_, c, rank).count);
    case Pieces::kRunShares:
      break;
  }
  const std::vector<int64_t> runs = runs_of_group(c, rank);
  const int32_t replicas = part_.num_replicas();
  std::vector<int64_t> shares(runs.size() * index(replicas));
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::vector<int64_t> of_run = even_shares(runs[i], replicas);
    for (size_t r = 0; r < of_run.size(); ++r)
      shares[r * runs.size() + i] = of_run[r];
  }
  return shares;
}

const std::vector<int64_t>& BucketPieces::runs(Tensors tensors, int32_t slice) {
  const bool matrices = tensors == Tensors::kMatrices;
  std::vector<std::vector<int64_t>>& known = runs_[matrices ? 0 : 1];
  known.resize(index(part_.grid.places));
  std::vector<int64_t>& own = known[index(slice)];
  if (own.empty())
    own = matrices ? matrix_runs(part_, bucket_, slice)
                   : adamw_runs(part_, bucket_, slice);
  return own;
}

// Returns runs in the order of the group: home by home, and slice by slice
// inside a home.
std::vector<int64_t> BucketPieces::runs_of_group(const BucketCollective& c,
                                                 int32_t rank) {
  const ZeroSizes& zero = part_.options.zero.sizes;
  const int32_t place = in_grid(part_, rank).place;
  const Extent slices = kept_slices(
      part_.grid, place, c.group == GroupKind::kPublish ? zero.z3 : zero.z2);
  const auto first = static_cast<int32_t>(slices.first);
  const size_t homes = runs(c.tensors, first).size();
  std::vector<int64_t> out;
  out.reserve(homes * index(slices.count));
  for (size_t h = 0; h < homes; ++h)
    for (int32_t i = 0; i < slices.count; ++i)
      out.push_back(runs(c.tensors, first + i)[h]);
  return out;
}

int64_t BucketPieces::own_run(const BucketCollective& c, int32_t rank) {
  const Coordinates at = in_grid(part_, rank);
  const Buffer& buffer = part_.buffers[index(bucket_.buffer)];
  return runs(c.tensors,
              part_.grid.slice_of(at.place))[index(at.home_in(buffer))];
}

int64_t BucketPieces::all_of(Tensors tensors, int32_t rank) {
  const int32_t place = in_grid(part_, rank).place;
  if (tensors == Tensors::kAll) return kept_at(place, Resting::kGradients);
  const Extent slices =
      kept_slices(part_.grid, place, part_.options.zero.sizes.z2);
  int64_t all = 0;
  for (auto s = static_cast<int32_t>(slices.first); s < slices.end(); ++s) {
    if (tensors == Tensors::kElements)
      all += adamw_slice(part_, bucket_, s);
    else if (part_.traffic != Traffic::kPadded)
      all += matrix_slice(part_, bucket_, s);
    else
      all += std::reduce(runs(tensors, s).begin(), runs(tensors, s).end());
  }
  return all;
}

bool BucketPieces::has_frozen() {
  if (!has_frozen_)
    has_frozen_ = std::ranges::any_of(bucket_.tensors, [&](int32_t t) {
      return part_.model.tensors[index(t)].frozen;
    });
  return *has_frozen_;
}

int64_t BucketPieces::kept_at(int32_t place, Resting what) {
  // Gradients and parameters have the same counts unless a frozen tensor, which
  // has no gradient, lies in the bucket.
  const ZeroSizes& zero = part_.options.zero.sizes;
  if (what == Resting::kGradients && zero.z2 == zero.z3 && !has_frozen())
    what = Resting::kParameters;
  std::vector<int64_t>& known = kept_[what == Resting::kParameters ? 0 : 1];
  if (known.empty()) known = kept_elements(part_, bucket_, what);
  return known[index(place)];
}

std::vector<int64_t> BucketPieces::kept(const BucketCollective& c,
                                        int32_t rank) {
  const Resting what = c.purpose == Purpose::kGatherModule
                           ? Resting::kParameters
                           : Resting::kGradients;
  const RankGroup group = group_of(part_, rank, c.group);
  std::vector<int64_t> all;
  for (int32_t i = 0; i < group.count; ++i)
    all.push_back(kept_at(in_grid(part_, group.rank(i)).place, what));
  return all;
}

// Across nodes a rank exchanges only its own share of the node's elements.
std::vector<int64_t> BucketPieces::shares_of_all(const BucketCollective& c,
                                                 int32_t rank) {
  const int64_t all = all_of(c.tensors, rank);
  const int32_t count = ranks_of(part_, c, rank).count;
  if (c.level != Level::kAcross) return even_shares(all, count);
  const RankGroup group = group_of(part_, rank, c.group);
  const int32_t inside = levels_of(part_, group).inside;
  const int32_t own = group.number_of(rank) % inside;
  return even_shares(even_shares(all, inside)[index(own)], count);
}

// Across nodes, members with the same number inside their nodes exchange their
// pieces; inside a node, a member has the pieces of its number from every node.
std::vector<int64_t> BucketPieces::at_level(const BucketCollective& c,
                                            int32_t rank,
                                            std::vector<int64_t> all) const {
  if (c.level == Level::kBoth) return all;
  const RankGroup group = group_of(part_, rank, c.group);
  const auto inside = index(levels_of(part_, group).inside);
  const size_t own = index(group.number_of(rank)) % inside;
  std::vector<int64_t> out;
  if (c.level == Level::kInside) out.resize(inside, 0);
  for (size_t i = 0; i < all.size(); ++i) {
    if (c.level == Level::kInside)
      out[i % inside] += all[i];
    else if (i % inside == own)
      out.push_back(all[i]);
  }
  return out;
}

}  // namespace canzona

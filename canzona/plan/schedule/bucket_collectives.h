// The collectives of a bucket in an iteration.
//
//   for (const BucketCollective& c : sums_of(part, buffer, rank)) {
//     const RankGroup ranks = ranks_of(part, c, rank);
//     std::vector<int64_t> counts = pieces.counts(c, rank);  // BucketPieces
//
// The part and the rank's groups decide which collectives there are; they are
// the same for all buckets of a buffer. The bucket and the rank decide how much
// each member of a group has. The schedule lists the collectives, predictions
// add up their bytes, the simulation times them, and the runtime executes them.
// Pure; the part must outlive everything here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/rank_layout.h"

namespace canzona {

// The kind and the purpose of a schedule entry.
enum class EntryKind {
  kCall,  // a point at which the trainer calls
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kPrepare,    // the rule's fields of pieces, into a slot
  kTransform,  // of the matrices that this rank owns
  // Stages of a matrix that a team shares.
  kLoadStrips,      // and compute their norm
  kScaleStrips,     // by the matrix's norm; once more if it is far from 1
  kSumStrips,       // their Gram matrix
  kRoundSum,        // a piece of the team's sum
  kIterate,         // on the head: computes a factor of the sum
  kMultiplyStrips,  // by the factor
  kApply,           // updates to pieces
  kUpdateElements,  // AdamW's
  kUpdateMatrices,  // of a home of one plane: without an exchange
  kWait,            // until an exchange that the caller issued has ended
};

constexpr bool is_collective(EntryKind kind) {
  return kind >= EntryKind::kAllGather && kind <= EntryKind::kBroadcast;
}

// The purpose of a collective decides which thread issues it.
enum class Purpose {
  kNone,
  kGatherModule,   // parameters, before each use
  kScatterModule,  // gradients, after each micro-batch
  kSum,            // gradients of a bucket, to the ranks that keep them
  kSumReplicas,    // … and over replicated groups
  kCheck,          // whether gradients are finite, and their norm
  kGatherMatrices,
  kScatterMatrices,
  kPublish,  // new parameters
  // Between the members of a team (team_schedule.h).
  kTeamNorms,
  kTeamSums,
  kTeamTotals,
  kTeamFactors,
  kTeamPasses,
};
inline constexpr int kNumPurposes = 14;

constexpr bool is_of_team(Purpose purpose) {
  return purpose >= Purpose::kTeamNorms;
}
inline constexpr int kNumTeamPurposes =
    kNumPurposes - static_cast<int>(Purpose::kTeamNorms);

// The bytes that ranks send and receive in a collective, by link class.
//
//   const WireBytes own =
//       member_bytes(part, group, rank, EntryKind::kAllGather, counts);
//
// Collectives are pairwise exchanges: every member sends to every other one
// that member's piece (reduce-scatter) or its own (all-gather); an all-reduce
// is one followed by the other. A link is `intra` if both ranks are on one
// node. Pure.

struct WireBytes {
  int64_t sent_intra = 0;
  int64_t sent_inter = 0;
  int64_t received_intra = 0;
  int64_t received_inter = 0;
  WireBytes& operator+=(const WireBytes& other) { return add(other, 1); }
  WireBytes& add(const WireBytes& other, int64_t times);
  friend WireBytes operator+(WireBytes a, const WireBytes& b) { return a += b; }
  int64_t sent() const { return sent_intra + sent_inter; }
  int64_t received() const { return received_intra + received_inter; }
};

// The element-wise maximum.
WireBytes largest(const WireBytes& a, const WireBytes& b);

// Returns the bytes of one member; `counts` are the bytes of each member's
// piece. A broadcast is counted like an all-gather, as the sum over several
// roots.
WireBytes member_bytes(const PlanPart& part, const RankGroup& group,
                       int32_t rank, EntryKind kind,
                       std::span<const int64_t> counts);

// Adds the bytes of all members to `out(rank)`, for ranks of the part.
template <class BytesOfRank>
void add_member_bytes(const PlanPart& part, const RankGroup& group,
                      EntryKind kind, std::span<const int64_t> counts,
                      BytesOfRank&& out);

// Members of a group on the same node are consecutive: number and bytes of
// their pieces, and of all other pieces.
struct NodeShare {
  int64_t near_ranks = 0;
  int64_t near_bytes = 0;
  int64_t far_ranks = 0;
  int64_t far_bytes = 0;
};
// Returns the bytes of a member with a piece of size `own`, which `others` does
// not include.
WireBytes pairwise_bytes(EntryKind kind, int64_t own, const NodeShare& others);

template <class BytesOfRank>
void add_member_bytes(const PlanPart& part, const RankGroup& group,
                      EntryKind kind, std::span<const int64_t> counts,
                      BytesOfRank&& out) {
  int64_t all = 0;
  for (const int64_t count : counts) all += count;
  const auto piece = [&](int32_t i) { return counts[static_cast<size_t>(i)]; };
  for (int32_t begin = 0, end = 0; begin < group.count; begin = end) {
    const int32_t node = part.node_of(group.rank(begin));
    int64_t here = 0;
    for (; end < group.count && part.node_of(group.rank(end)) == node; ++end)
      here += piece(end);
    const int64_t near = end - begin - 1, far = group.count - 1 - near;
    for (int32_t i = begin; i < end; ++i)
      out(group.rank(i)) += pairwise_bytes(
          kind, piece(i), {near, here - piece(i), far, all - here});
  }
}

struct BucketCollective {
  // Which tensors of the bucket: all, those of the matrix rule, or AdamW's.
  enum class Tensors { kAll, kMatrices, kElements };
  // What a member's count means.
  enum class Pieces {
    kKept,       // what it keeps at rest
    kRuns,       // its run
    kRunShares,  // its replica's share of the run of its place
    kShares,     // an even share of all that this rank has
    kOwnShares,  // an even share of this rank's own run
  };
  // The level of a group that sends once per node (rank_group.h).
  enum class Level { kBoth, kAcross, kInside };

  EntryKind kind = EntryKind::kCall;
  Purpose purpose = Purpose::kNone;
  GroupKind group = GroupKind::kAll;
  Tensors tensors = Tensors::kAll;
  Pieces pieces = Pieces::kRuns;
  Level level = Level::kBoth;
};
using BucketCollectives = std::vector<BucketCollective>;

// Return collectives in execution order.
BucketCollectives gathers_of(const PlanPart& part, int32_t rank);
BucketCollectives scatters_of(const PlanPart& part, int32_t rank);
// An all-reduce in two levels has three legs: each rank of a node reduces a
// share inside the node, sums that share across nodes, and gathers the other
// shares inside the node.
BucketCollectives sums_of(const PlanPart& part, const Buffer& buffer,
                          int32_t rank);
// A broadcast here stands for the broadcasts of all matrices' pieces from their
// homes.
BucketCollectives publishes_of(const PlanPart& part, const Buffer& buffer,
                               int32_t rank);

// Returns the members that take part, `rank` among them.
RankGroup ranks_of(const PlanPart& part, const BucketCollective& collective,
                   int32_t rank);
int64_t element_bytes(const PlanPart& part, const BucketCollective& collective);

// Counts how much of one bucket each rank has; caches lookups.
class BucketPieces {
 public:
  BucketPieces(const PlanPart& part, const Bucket& bucket)
      : part_(part), bucket_(bucket) {}

  // Returns the elements of each member of ranks_of(collective, rank).
  std::vector<int64_t> counts(const BucketCollective& collective, int32_t rank);

 private:
  using Tensors = BucketCollective::Tensors;
  const std::vector<int64_t>& runs(Tensors tensors, int32_t slice);
  std::vector<int64_t> runs_of_group(const BucketCollective& collective,
                                     int32_t rank);
  int64_t own_run(const BucketCollective& collective, int32_t rank);
  int64_t all_of(Tensors tensors, int32_t rank);
  bool has_frozen();
  int64_t kept_at(int32_t place, Resting what);
  std::vector<int64_t> kept(const BucketCollective& collective, int32_t rank);
  std::vector<int64_t> shares_of_all(const BucketCollective& collective,
                                     int32_t rank);
  // Selects the counts of a whole group that belong to the collective's level.
  std::vector<int64_t> at_level(const BucketCollective& collective,
                                int32_t rank, std::vector<int64_t> all) const;

  const PlanPart& part_;
  const Bucket& bucket_;
  std::vector<std::vector<int64_t>> runs_[2];  // [tensors][slice][home]
  std::vector<int64_t> kept_[2];               // [what][place]
  std::optional<bool> has_frozen_;
};

// Cuts `elements` as evenly as possible.
std::vector<int64_t> even_shares(int64_t elements, int32_t count);

}  // namespace canzona

// The collectives that a bucket goes through in an iteration.
//
//   for (const BucketCollective& c : sums_of(part, buffer, rank)) {
//     const RankGroup ranks = ranks_of(part, c, rank);
//     std::vector<int64_t> counts = pieces.counts(c, rank);  // BucketPieces
//
// The part and the rank's groups decide which ones they are, the same for all
// buckets of a buffer; the bucket and the rank decide how much each member of a
// group has. The schedule lists them, predictions add up their bytes, the
// simulation times them, the runtime carries them out. Pure; the part outlives
// everything here.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/rank_layout.h"

namespace canzona {

// An entry of the schedule has a kind and a purpose.

enum class EntryKind {
  kCall,  // a point at which the trainer calls
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  kBroadcast,
  kPrepare,    // what the rule gathers of pieces, into a slot
  kTransform,  // of the matrices that this rank owns
  // Stages of a matrix that a team shares. One that a rank owns and whose
  // strips go one by one has the sum of each, the iteration, the product of
  // each.
  kLoadStrips,      // and their norm
  kScaleStrips,     // by the matrix's norm; once more if it is far from 1
  kSumStrips,       // their Gram matrix
  kRoundSum,        // a piece of the team's sum
  kIterate,         // at the head: a factor of the sum
  kMultiplyStrips,  // by the factor
  kApply,           // updates to pieces
  kUpdateElements,  // AdamW's
  kUpdateMatrices,  // of a home of one plane: no exchange
};

constexpr bool is_collective(EntryKind kind) {
  return kind >= EntryKind::kAllGather && kind <= EntryKind::kBroadcast;
}

// The purpose of a collective decides who issues it.
enum class Purpose {
  kNone,
  kGatherModule,   // parameters, before each use
  kScatterModule,  // gradients, after each micro-batch
  kSum,            // gradients of a bucket to those who keep them
  kSumReplicas,    // … and over groups that repeat each other
  kCheck,          // finite? how large?
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

// WireBytes are what ranks send and receive in a collective, by link class.
//
//   const WireBytes own =
//       member_bytes(part, group, rank, EntryKind::kAllGather, counts);
//
// Collectives are pairwise exchanges: every member sends every other one that
// member's piece (reduce-scatter) or its own (all-gather); an all-reduce is one
// after the other. Two ranks are linked `intra` if they share a node. Pure.

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

// The larger of each.
WireBytes largest(const WireBytes& a, const WireBytes& b);

// Returns the bytes of one member; `counts` are the bytes of each member's
// piece. A broadcast is counted as an all-gather: what several roots send one
// after the other.
WireBytes member_bytes(const PlanPart& part, const RankGroup& group,
                       int32_t rank, EntryKind kind,
                       std::span<const int64_t> counts);

// Adds the bytes of all members to those of the part's ranks: `out[rank]`.
template <class BytesOfRank>
void add_member_bytes(const PlanPart& part, const RankGroup& group,
                      EntryKind kind, std::span<const int64_t> counts,
                      BytesOfRank&& out);

// Members of a group that share a node stand in a row: number and bytes of
// their pieces, and of all others'.
struct NodeShare {
  int64_t near_ranks = 0;
  int64_t near_bytes = 0;
  int64_t far_ranks = 0;
  int64_t far_bytes = 0;
};
// Returns the bytes of a member with a piece of its own, which the share does
// not hold.
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
  // The tensors of the bucket: all, those of the matrix rule, or AdamW's.
  enum class Tensors { kAll, kMatrices, kElements };
  // The meaning of a member's count.
  enum class Pieces {
    kKept,       // what it keeps at rest
    kRuns,       // its run of them
    kRunShares,  // of the run of its place in a replica, its replica's share
    kShares,     // an even share of all that this rank has of them
    kOwnShares,  // an even share of this rank's own run
  };
  // A group that sends once per node has two (rank_group.h).
  enum class Level { kBoth, kAcross, kInside };

  EntryKind kind = EntryKind::kCall;
  Purpose purpose = Purpose::kNone;
  GroupKind group = GroupKind::kAll;
  Tensors tensors = Tensors::kAll;
  Pieces pieces = Pieces::kRuns;
  Level level = Level::kBoth;
};
using BucketCollectives = std::vector<BucketCollective>;

// Each in the order in which it is carried out.
BucketCollectives gathers_of(const PlanPart& part, int32_t rank);
BucketCollectives scatters_of(const PlanPart& part, int32_t rank);
// An all-reduce in two levels has three legs: each rank of a node adds a share
// of it inside, sums that one across, and gathers the others' inside.
BucketCollectives sums_of(const PlanPart& part, const Buffer& buffer,
                          int32_t rank);
// Broadcasts stand for one of each matrix's pieces, from its home.
BucketCollectives publishes_of(const PlanPart& part, const Buffer& buffer,
                               int32_t rank);

// The members among whom it goes on, `rank` one of them.
RankGroup ranks_of(const PlanPart& part, const BucketCollective& collective,
                   int32_t rank);
int64_t element_bytes(const PlanPart& part, const BucketCollective& collective);

// BucketPieces tell how much of one bucket ranks have; they remember what was
// looked up.
class BucketPieces {
 public:
  BucketPieces(const PlanPart& part, const Bucket& bucket)
      : part_(part), bucket_(bucket) {}

  // Elements of each member of ranks_of(collective, rank).
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
  // Returns those of a whole group's counts that belong to the collective's
  // level.
  std::vector<int64_t> at_level(const BucketCollective& collective,
                                int32_t rank, std::vector<int64_t> all) const;

  const PlanPart& part_;
  const Bucket& bucket_;
  std::vector<std::vector<int64_t>> runs_[2];  // [tensors][slice][home]
  std::vector<int64_t> kept_[2];               // [what][place]
  std::optional<bool> has_frozen_;
};

// Cut as even as they can be.
std::vector<int64_t> even_shares(int64_t elements, int32_t count);

}  // namespace canzona

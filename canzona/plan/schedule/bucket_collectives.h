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
#include <vector>

#include "canzona/plan/schedule/entry_kind.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/runs.h"

namespace canzona {

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

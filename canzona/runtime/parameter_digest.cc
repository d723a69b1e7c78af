#include "canzona/runtime/rank_digest.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/runtime/digest_parts.h"

namespace canzona {
namespace {

// Some elements of a tensor's shard, as the whole tensor counts them.
void add_piece(Rank& rank, int32_t t, const ExtentCopy& piece,
               LogicalDigest& digest) {
  const Tensor& tensor = rank.tensor(t);
  const std::byte* memory =
      rank.store.parameter(rank.layout.parameters.place_of(t, piece));
  std::vector<uint32_t> bits(index(piece.count));
  if (rank.store.parameter_bytes() == 4) {
    bits = downloaded<uint32_t>(rank, memory, piece.count);
  } else {
    const auto halves = downloaded<uint16_t>(rank, memory, piece.count);
    std::copy(halves.begin(), halves.end(), bits.begin());
  }
  add_of_shard<uint32_t>(digest, name_seed(tensor.name), rank, tensor,
                         piece.from, bits);
}

// The parameters of dense tensors (or of experts) on this rank.
LogicalDigest own_parameters(Rank& rank, bool of_experts, bool counted) {
  LogicalDigest digest;
  const FlatLayout& layout = rank.layout.parameters;
  for (const RankBucket& bucket : layout.buckets) {
    if (bucket.of_experts != of_experts) continue;
    for (int32_t t : rank.plan.buckets[index(bucket.bucket)].tensors) {
      if (counted && !rank.counts_shard(t)) continue;
      for (const ExtentCopy& piece : layout.pieces[index(t)])
        add_piece(rank, t, piece, digest);
    }
  }
  return digest;
}

// Every home must hold the same parameters as the first.
void require_same(Rank& rank, bool of_experts, LogicalDigest mine) {
  const auto all = from_all<uint64_t>(rank.groups.control(), mine.words());
  const int32_t first =
      first_with_parameters(rank.plan, rank.world_rank, of_experts);
  if (!std::ranges::equal(all[index(first)], mine.words()))
    throw InternalError(cat("rank ", rank.known_as, " holds other ",
                            rank.prefix, of_experts ? "expert" : "dense",
                            " parameters than rank ",
                            rank.plan.rank_in_whole(first)));
}

}  // namespace

LogicalDigest digest_parameters(Rank& rank) {
  LogicalDigest digest;
  for (const bool of_experts : {false, true}) {
    require_same(rank, of_experts, own_parameters(rank, of_experts, false));
    if (first_with_parameters(rank.plan, rank.world_rank, of_experts) ==
        rank.world_rank)
      digest.add(own_parameters(rank, of_experts, true));
  }
  return digest;
}

}  // namespace canzona

#include "canzona/runtime/digest/rank_digest.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"
#include "canzona/runtime/rank_states.h"

namespace canzona {
namespace {

// Memory of the engine, as this process can read it.
template <class Number>
std::vector<Number> downloaded(Rank& rank, const void* from, int64_t count) {
  std::vector<Number> values(index(count));
  rank.engine.download(reinterpret_cast<std::byte*>(values.data()),
                       static_cast<const std::byte*>(from),
                       count * static_cast<int64_t>(sizeof(Number)));
  return values;
}

// The tp shard of a tensor on this rank, all slices, as runs of the whole.
std::vector<ExtentCopy> shard_runs(const Rank& rank, const Tensor& tensor) {
  return logical_runs(tensor, rank.part.grid.tp_ranks(), rank.at.tp_rank);
}

// Values of a shard from its element `in_shard` on, as the whole tensor counts
// them.
template <class Number>
void add_of_shard(LogicalDigest& digest, uint64_t seed, const Rank& rank,
                  const Tensor& tensor, int64_t in_shard,
                  std::span<const Number> values) {
  for (const ExtentCopy& whole : shard_runs(rank, tensor)) {
    const ExtentCopy run = whole.from_within({in_shard, std::ssize(values)});
    if (run.count > 0)
      digest.add(seed, run.to,
                 values.subspan(index(run.from - in_shard), index(run.count)));
  }
}

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
    for (int32_t t : rank.part.buckets[index(bucket.bucket)].tensors) {
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
      first_with_parameters(rank.part, rank.world_rank, of_experts);
  if (!std::ranges::equal(all[index(first)], mine.words()))
    throw InternalError(cat("rank ", rank.known_as, " holds other ",
                            rank.prefix, of_experts ? "expert" : "dense",
                            " parameters than rank ",
                            rank.part.rank_in_whole(first)));
}

}  // namespace

LogicalDigest digest_parameters(Rank& rank) {
  LogicalDigest digest;
  for (const bool of_experts : {false, true}) {
    require_same(rank, of_experts, own_parameters(rank, of_experts, false));
    if (first_with_parameters(rank.part, rank.world_rank, of_experts) ==
        rank.world_rank)
      digest.add(own_parameters(rank, of_experts, true));
  }
  return digest;
}

namespace {

// Rows of a box, as the whole tensor counts them. A stack of matrices is kept
// whole.
void add_box(Rank& rank, const StateBox& box, LogicalDigest& digest) {
  std::vector<float> values(index(box.elements));
  get_state(rank, box, values);
  const uint64_t seed = name_seed(
      cat(box.owner, "/",
          box.buffer == StateBuffer::kMasters ? "master" : box.state));
  if (box.count == box.shape) {
    digest.add(seed, 0, std::span<const float>(values));
    return;
  }
  const int64_t cols = box.shape.size() < 2 ? 1 : box.shape[1];
  const int64_t first_col = box.shape.size() < 2 ? 0 : box.first[1];
  const int64_t num_cols = box.shape.size() < 2 ? 1 : box.count[1];
  for (int64_t row = 0; row < box.count[0]; ++row)
    digest.add(seed, (box.first[0] + row) * cols + first_col,
               std::span<const float>(values).subspan(index(row * num_cols),
                                                      index(num_cols)));
}

}  // namespace

// Weights that are the parameters themselves are digested with those.
LogicalDigest digest_states(Rank& rank) {
  LogicalDigest digest;
  for (const StateBox& box : states_of(rank))
    if (box.given && box.buffer != StateBuffer::kParameters)
      add_box(rank, box, digest);
  return digest;
}

}  // namespace canzona

#include "canzona/runtime/digest/rank_digest.h"

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/comm/from_all.h"

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
  const int32_t tp = rank.part.grid.tp_ranks();
  return logical_runs(tensor, tp, rank.place.t % tp);
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

// What this rank keeps of a matrix, piece by piece, in a thing of the matrix's
// shape.
void add_pieces(LogicalDigest& digest, uint64_t seed, const KeptMatrix& matrix,
                std::span<const float> values) {
  const int64_t cols = matrix.dims[1];
  for (const Piece& piece : matrix.pieces)
    for (int64_t row = 0; row < piece.num_rows; ++row)
      digest.add(seed, (piece.first_row + row) * cols + piece.first_col,
                 values.subspan(index(piece.kept - matrix.kept.first +
                                      row * piece.num_cols),
                                index(piece.num_cols)));
}

// Whether this rank adds the states of a tensor.
bool adds_states(const Rank& rank, int32_t tensor) {
  return counts_states(rank.part, rank.world_rank, tensor);
}
// … that every tp rank has a shard of.
bool adds_shard(const Rank& rank, int32_t tensor) {
  return adds_states(rank, tensor) && rank.counts_shard(tensor);
}

void add_shard_states(Rank& rank, LogicalDigest& digest) {
  for (size_t k = 0; k < rank.kept.matrices.size(); ++k) {
    const KeptMatrix& matrix = rank.kept.matrices[k];
    if (!adds_shard(rank, rank.tensor_of(matrix))) continue;
    const std::string name =
        matrix_name(rank.part.model, rank.part.matrices[index(matrix.matrix)],
                    rank.part.options.splits);
    for (const StatePlace& state : rank.updates.with_shard[k])
      add_pieces(digest, name_seed(cat(name, "/", state.fact.name)), matrix,
                 downloaded<float>(rank, rank.store.states() + state.first,
                                   matrix.kept.count));
  }
}

// Of updates that every tp rank repeats the first rank's states count.
void add_owner_states(Rank& rank, LogicalDigest& digest) {
  for (const std::vector<UpdateBatch>& batches : rank.updates.batches)
    for (const UpdateBatch& batch : batches)
      for (size_t i = 0; i < batch.members.size(); ++i) {
        const KeptMatrix& matrix = rank.kept.matrices[index(batch.members[i])];
        const auto m = index(matrix.matrix);
        if (!adds_states(rank, rank.tensor_of(matrix)) ||
            (rank.part.owners[m].empty() && rank.place.t != 0))
          continue;
        const std::string name = matrix_name(
            rank.part.model, rank.part.matrices[m], rank.part.options.splits);
        for (const StatePlace& state : batch.owned)
          digest.add(name_seed(cat(name, "/", state.fact.name)), 0,
                     std::span<const float>(downloaded<float>(
                         rank,
                         rank.store.states() + state.first +
                             static_cast<int64_t>(i) * state.fact.elements(),
                         state.fact.elements())));
      }
}

void add_element_states(Rank& rank, LogicalDigest& digest) {
  const auto add = [&](const KeptElements& elements, std::string_view name,
                       const float* values) {
    const Tensor& tensor = rank.tensor(elements.tensor);
    add_of_shard<float>(
        digest, name_seed(cat(tensor.name, "/", name)), rank, tensor,
        elements.in_shard.first,
        downloaded<float>(rank, values, elements.in_shard.count));
  };
  for (const KeptElements& elements : rank.kept.elements) {
    if (!adds_shard(rank, elements.tensor)) continue;
    const float* states = rank.store.states() + elements.kept;
    add(elements, "exp_avg", states + rank.updates.exp_avg);
    add(elements, "exp_avg_sq", states + rank.updates.exp_avg_sq);
    if (rank.store.rounded())
      add(elements, "master", rank.store.weights(elements));
  }
}

void add_masters(Rank& rank, LogicalDigest& digest) {
  if (!rank.store.rounded()) return;
  for (const KeptMatrix& matrix : rank.kept.matrices) {
    if (!adds_shard(rank, rank.tensor_of(matrix)) || matrix.pieces.empty())
      continue;
    const std::string name =
        matrix_name(rank.part.model, rank.part.matrices[index(matrix.matrix)],
                    rank.part.options.splits);
    add_pieces(digest, name_seed(cat(name, "/master")), matrix,
               downloaded<float>(rank, rank.store.weights(matrix.pieces[0]),
                                 matrix.kept.count));
  }
}

}  // namespace

LogicalDigest digest_states(Rank& rank) {
  LogicalDigest digest;
  add_shard_states(rank, digest);
  add_owner_states(rank, digest);
  add_element_states(rank, digest);
  add_masters(rank, digest);
  return digest;
}

}  // namespace canzona

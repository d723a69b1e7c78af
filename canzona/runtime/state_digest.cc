#include "canzona/runtime/rank_digest.h"

#include <algorithm>

#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/runtime/digest_parts.h"

namespace canzona {
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
  return counts_states(rank.plan, rank.world_rank, tensor);
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
        matrix_name(rank.plan.model, rank.plan.matrices[index(matrix.matrix)],
                    rank.plan.options.splits);
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
            (rank.plan.owners[m].empty() && rank.place.t != 0))
          continue;
        const std::string name = matrix_name(
            rank.plan.model, rank.plan.matrices[m], rank.plan.options.splits);
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
        matrix_name(rank.plan.model, rank.plan.matrices[index(matrix.matrix)],
                    rank.plan.options.splits);
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

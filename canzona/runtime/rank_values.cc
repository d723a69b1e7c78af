#include "canzona/runtime/rank_values.h"

#include <cstring>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/float16.h"
#include "canzona/base/text.h"
#include "canzona/rules/optimizer.h"

namespace canzona::runtime {
namespace {

void set_piece(Rank& rank, int32_t tensor, const ExtentCopy& piece,
               const float* shard) {
  const int64_t first = rank.layout.parameters.offset_of(tensor, piece);
  const float* from = shard + piece.from;
  if (rank.store.rounded())
    rank.engine.round_weights(rank.store.rounded_copy(first), from,
                              piece.count);
  else
    rank.engine.copy(
        matrices(reinterpret_cast<float*>(rank.store.parameter(first)), 1,
                 piece.count),
        matrices(from, 1, piece.count));
}

void copy_to_masters(Rank& rank, int32_t tensor, const float* shard) {
  const auto copy = [&](const StoredWeights& to, int64_t from, int64_t count) {
    store(rank.engine, to, shard + from, count);
  };
  for (const KeptMatrix& matrix : rank.kept.matrices) {
    if (rank.tensor_of(matrix) != tensor) continue;
    for (const Piece& piece : matrix.pieces)
      copy(rank.store.weights(piece), piece.in_shard, piece.elements());
  }
  for (const KeptElements& elements : rank.kept.elements)
    if (elements.tensor == tensor)
      copy(rank.store.weights(elements), elements.in_shard.first,
           elements.in_shard.count);
}

// Copies values in the engine's memory to the host. bf16 values arrive in the
// second half, from which each is widened in place.
void download(Rank& rank, const std::byte* from, bool is_bf16,
              std::span<float> values) {
  auto* to = reinterpret_cast<std::byte*>(values.data());
  const int64_t count = std::ssize(values);
  if (!is_bf16) {
    rank.engine.download(to, from, count * kBytesPerFp32);
    return;
  }
  std::byte* halves = to + count * kBytesPerBf16;
  rank.engine.download(halves, from, count * kBytesPerBf16);
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, halves + i * sizeof(half), sizeof(half));
    values[i] = float_from_bf16(half);
  }
}

void read_run(Rank& rank, int64_t first, std::span<float> values) {
  download(rank, rank.store.parameter(first), rank.store.rounded(), values);
}

// Uploads values to scratch memory of the engine, which `use` may read.
template <class Use>
void upload(Rank& rank, std::span<const float> values, const Use& use) {
  Arena& arena = rank.engine.arena();
  const Arena::Scope scope(arena);
  auto* there = arena.take_array<float>(std::ssize(values));
  rank.engine.upload(reinterpret_cast<std::byte*>(there),
                     reinterpret_cast<const std::byte*>(values.data()),
                     std::ssize(values) * kBytesPerFp32);
  use(there);
  rank.settle();
}

StoredWeights masters_of(const Rank& rank, const StateBox& box) {
  return rank.store.weights_at(box.parameter, box.at);
}

bool is_bf16(const Rank& rank, const StateBox& box) {
  return box.buffer == StateBuffer::kParameters && rank.store.rounded();
}

void require_count(const StateBox& box, size_t count) {
  if (!std::cmp_equal(count, box.elements))
    throw UsageError(cat(count, " values for a box of ", quoted(box.name()),
                         ", which has ", box.elements));
}

}  // namespace

void write_shard(Rank& rank, int32_t tensor, std::span<const float> shard) {
  const int64_t count =
      stored_shard(rank, rank.layout.parameters, tensor).count;
  if (!std::cmp_equal(shard.size(), count))
    throw UsageError(cat("set_parameter: ", shard.size(), " values for ",
                         quoted(rank.tensor(tensor).name), ", whose shard has ",
                         count));
  if (count == 0) return;
  upload(rank, shard,
         [&](const float* there) { write_shard_there(rank, tensor, there); });
}

void write_shard_there(Rank& rank, int32_t tensor, const float* shard) {
  stored_shard(rank, rank.layout.parameters, tensor);
  for (const ExtentCopy& piece : rank.layout.parameters.pieces[index(tensor)])
    set_piece(rank, tensor, piece, shard);
  if (rank.store.rounded()) copy_to_masters(rank, tensor, shard);
}

void read_kept(Rank& rank, int32_t tensor, std::span<float> values) {
  const FlatLayout& layout = rank.layout.parameters;
  stored_shard(rank, layout, tensor);
  int64_t kept = 0;
  for (const ExtentCopy& piece : layout.pieces[index(tensor)])
    kept += piece.count;
  if (!std::cmp_equal(values.size(), kept))
    throw UsageError(cat("get_kept: room for ", values.size(), " values of ",
                         quoted(rank.tensor(tensor).name),
                         ", of which this rank keeps ", kept));
  int64_t done = 0;
  for (const ExtentCopy& piece : layout.pieces[index(tensor)]) {
    read_run(rank, layout.offset_of(tensor, piece),
             values.subspan(index(done), index(piece.count)));
    done += piece.count;
  }
}

void read_shard(Rank& rank, int32_t tensor, std::span<float> shard) {
  const FlatLayout& layout = rank.layout.parameters;
  const FlatLayout::Shard& stored = stored_shard(rank, layout, tensor);
  if (!layout.whole || !std::cmp_equal(shard.size(), stored.count))
    throw UsageError(cat("get_parameter: room for ", shard.size(),
                         " values of ", quoted(rank.tensor(tensor).name),
                         ", whose shard has ", stored.count,
                         layout.whole ? "" : " and is cut over several ranks"));
  if (stored.count > 0) read_run(rank, stored.first, shard);
}

std::byte* memory_of(const Rank& rank, const StateBox& box) {
  switch (box.buffer) {
    case StateBuffer::kParameters:
      return rank.store.parameter(box.at);
    case StateBuffer::kMasters:
      return reinterpret_cast<std::byte*>(
          restored(rank.engine, masters_of(rank, box), box.elements));
    case StateBuffer::kStates:
      return reinterpret_cast<std::byte*>(rank.store.states() + box.at);
  }
  throw InternalError("unknown buffer of states");
}

std::vector<StateBox> boxes_of(const Rank& rank) {
  return state_boxes(rank.part, rank.world_rank,
                     {rank.at, rank.layout, rank.kept, rank.updates});
}

std::span<float> host_values(const Rank& rank, const StateBox& box) {
  const bool is_restored =
      box.buffer == StateBuffer::kMasters && rank.store.keeps_remainders();
  if (is_bf16(rank, box) || is_restored || !rank.wire_ops().is_host())
    return {};
  return {reinterpret_cast<float*>(memory_of(rank, box)), index(box.elements)};
}

void read_box(Rank& rank, const StateBox& box, std::span<float> values) {
  require_count(box, values.size());
  const Arena::Scope scope(rank.engine.arena());
  download(rank, memory_of(rank, box), is_bf16(rank, box), values);
}

void write_box(Rank& rank, const StateBox& box, std::span<const float> values) {
  require_count(box, values.size());
  if (box.buffer == StateBuffer::kMasters)
    return upload(rank, values, [&](const float* there) {
      store(rank.engine, masters_of(rank, box), there, box.elements);
    });
  std::byte* memory = memory_of(rank, box);
  if (is_bf16(rank, box))
    return upload(rank, values, [&](const float* there) {
      rank.engine.round_weights(reinterpret_cast<uint16_t*>(memory), there,
                                box.elements);
    });
  rank.engine.upload(memory, reinterpret_cast<const std::byte*>(values.data()),
                     box.elements * kBytesPerFp32);
  rank.settle();
}

// Remainders were written together with their weights.
void round_weights(Rank& rank) {
  if (!rank.store.rounded() || rank.store.keeps_remainders()) return;
  const auto round = [&](const StoredWeights& weights, int64_t count) {
    store(rank.engine, weights, elements<float>(weights.exact), count);
  };
  for (const KeptMatrix& matrix : rank.kept.matrices)
    for (const Piece& piece : matrix.pieces)
      round(rank.store.weights(piece), piece.elements());
  for (const KeptElements& elements : rank.kept.elements)
    round(rank.store.weights(elements), elements.in_shard.count);
  rank.settle();
}

void fill_states(Rank& rank) {
  for (const std::vector<UpdateBatch>& batches : rank.updates.batches)
    for (const UpdateBatch& batch : batches)
      for (const KeptState& state : batch.owned)
        fill_initially(rank.engine, *state.fact,
                       run_of(rank.store.states() + state.first),
                       static_cast<int64_t>(batch.members.size()));
  for (const std::vector<SharedStates>& round : rank.updates.shared)
    for (const SharedStates& states : round)
      for (const KeptState& state : states.own)
        fill_initially(rank.engine, *state.fact,
                       run_of(rank.store.states() + state.first), 1);
  rank.settle();
}

}  // namespace canzona::runtime

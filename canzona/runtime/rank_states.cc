#include "canzona/runtime/rank_states.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

bool is_bf16(const Rank& rank, const StateBox& box) {
  return box.buffer == StateBuffer::kParameters && rank.store.rounded();
}

void require_count(const StateBox& box, size_t count) {
  if (!std::cmp_equal(count, box.elements))
    throw UsageError(cat(count, " values for a box of ", quoted(box.name()),
                         ", which has ", box.elements));
}

}  // namespace

std::byte* memory_of(const Rank& rank, const StateBox& box) {
  const auto at = [&](float* buffer) {
    return reinterpret_cast<std::byte*>(buffer + box.at);
  };
  switch (box.buffer) {
    case StateBuffer::kParameters:
      return rank.store.parameter(box.at);
    case StateBuffer::kMasters:
      return at(rank.store.masters());
    case StateBuffer::kStates:
      return at(rank.store.states());
  }
  throw InternalError("unknown buffer of states");
}

std::vector<StateBox> states_of(const Rank& rank) {
  return state_boxes(rank.part, rank.world_rank,
                     {rank.at, rank.layout, rank.kept, rank.updates});
}

std::span<float> host_values(const Rank& rank, const StateBox& box) {
  if (is_bf16(rank, box) || !rank.wire_ops().is_host()) return {};
  return {reinterpret_cast<float*>(memory_of(rank, box)), index(box.elements)};
}

void get_state(Rank& rank, const StateBox& box, std::span<float> values) {
  require_count(box, values.size());
  const std::byte* memory = memory_of(rank, box);
  auto* to = reinterpret_cast<std::byte*>(values.data());
  if (!is_bf16(rank, box)) {
    rank.engine.download(to, memory, box.elements * kBytesPerFp32);
    return;
  }
  // Into the second half, from which each number moves to its place.
  std::byte* halves = to + box.elements * kBytesPerBf16;
  rank.engine.download(halves, memory, box.elements * kBytesPerBf16);
  constexpr int kHalf = 16;
  for (size_t i = 0; i < values.size(); ++i) {
    uint16_t half = 0;
    std::memcpy(&half, halves + i * sizeof(half), sizeof(half));
    values[i] = std::bit_cast<float>(uint32_t{half} << kHalf);
  }
}

void set_state(Rank& rank, const StateBox& box, std::span<const float> values) {
  require_count(box, values.size());
  const auto* from = reinterpret_cast<const std::byte*>(values.data());
  const int64_t bytes = box.elements * kBytesPerFp32;
  std::byte* memory = memory_of(rank, box);
  if (!is_bf16(rank, box)) {
    rank.engine.upload(memory, from, bytes);
  } else {
    Arena& arena = rank.engine.arena();
    const Arena::Scope scope(arena);
    auto* wide = arena.take_array<float>(box.elements);
    rank.engine.upload(reinterpret_cast<std::byte*>(wide), from, bytes);
    rank.engine.round_to_bf16(reinterpret_cast<uint16_t*>(memory), wide,
                              box.elements);
  }
  rank.settle();
}

void round_weights(Rank& rank) {
  if (!rank.store.rounded()) return;
  const auto round = [&](int64_t parameter, const float* weights,
                         int64_t count) {
    rank.engine.round_to_bf16(rank.store.rounded_copy(parameter), weights,
                              count);
  };
  for (const KeptMatrix& matrix : rank.kept.matrices)
    for (const Piece& piece : matrix.pieces)
      round(piece.parameter, rank.store.weights(piece), piece.elements());
  for (const KeptElements& elements : rank.kept.elements)
    round(elements.parameter, rank.store.weights(elements),
          elements.in_shard.count);
  rank.settle();
}

}  // namespace canzona

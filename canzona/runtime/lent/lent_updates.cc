#include "canzona/runtime/lent/lent_updates.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "canzona/base/check.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

Run take_floats(Engine& engine, int64_t count) {
  return run_of(engine.arena().take_array<float>(count));
}

// Copies elements, converting where one side is bf16.
void copy_or_convert(Engine& engine, Matrices to, ConstMatrices from) {
  if (to.dtype == from.dtype)
    engine.copy(to, from);
  else
    engine.convert(to, from);
}

// A rectangle of a matrix whose rows have `cols` elements.
Matrices rectangle_in(Run matrix, const Rectangle& r, int64_t cols) {
  Matrices view =
      as_matrices(advanced(matrix, r.first_row * cols + r.first_col),
                  r.num_rows, r.num_cols);
  view.row_stride = cols;
  return view;
}

// Rounds elements as if they had been sent.
void round_as_on_wire(Engine& engine, Run run, int64_t count, int64_t chunk) {
  const Arena::Scope scope(engine.arena());
  const int64_t most = std::min(count, chunk);
  const Run narrow{engine.arena().take(most * size_of(DType::kBf16)),
                   DType::kBf16};
  for (int64_t i = 0; i < count; i += most) {
    const int64_t some = std::min(most, count - i);
    engine.convert(as_row(narrow, some), as_row(advanced(run, i), some));
    engine.convert(as_row(advanced(run, i), some), as_row(narrow, some));
  }
}

bool has_all_columns(const PlacedPiece& piece, int64_t cols) {
  return piece.num_cols == cols;
}

}  // namespace

LentUpdates::LentUpdates(const LentRank& rank) : rank_(rank) {
  for (const PlacedRound& round : rank.schedule.rounds) {
    orders_.push_back(by_work(round.batches));
    shared_.push_back(chunks_of(round.shared));
  }
  local_order_ = by_work(rank.schedule.local);
  std::map<Dims, size_t> number;  // numbers shapes by descending work
  engine_of_.resize(local_order_.size());
  for (const int32_t b : local_order_) {
    const auto shape =
        number.try_emplace(rank.schedule.local[index(b)].dims, number.size())
            .first;
    engine_of_[index(b)] = rank.all[shape->second % rank.all.size()];
  }
  chunks_ = chunks_of(rank.schedule.elements);
  make_rooms();
}

void LentUpdates::Room::reserve(size_t most) {
  shards.reserve(most);
  states.resize(most * kMostShardStates);
  widened.reserve(most);
}

void LentUpdates::Room::clear() {
  shards.clear();
  widened.clear();
}

void LentUpdates::make_rooms() {
  size_t most = rank_.schedule.elements.size();
  for (const PlacedRound& round : rank_.schedule.rounds)
    most = std::max(most, round.shared.size());
  for (const PlacedBatch& batch : rank_.schedule.local) {
    size_t pieces = 0;
    for (const OwnedMatrix& one : batch.members) pieces += one.pieces.size();
    most = std::max(most, pieces);
  }
  const auto add = [&](Engine& engine) {
    rooms_.emplace_back().engine = &engine;
    rooms_.back().reserve(most);
  };
  if (rank_.lanes != nullptr)
    for (int i = 0; i < rank_.lanes->num_lanes(); ++i)
      add(rank_.lanes->lane(i));
  else
    for (Engine* engine : rank_.all) add(*engine);
}

LentUpdates::Room& LentUpdates::room_of(const Engine& engine) {
  return *std::ranges::find(rooms_, &engine, &Room::engine);
}

void LentUpdates::add_shard(Room& room, int32_t t, const Dims& whole,
                            int64_t at, int64_t count) const {
  Run* states = room.states.data() + room.shards.size() * kMostShardStates;
  room.shards.push_back(rank_.shard(t, whole, at, count, states));
  const Run gradient = rank_.gradient(t, at);
  Shard& shard = room.shards.back();
  shard.grad = gradient;
  if (gradient.dtype == DType::kFp32) return;
  const Run wide = take_floats(*room.engine, count);
  shard.grad = wide;
  room.widened.push_back({canzona::elements<float>(wide),
                          reinterpret_cast<const uint16_t*>(gradient.data),
                          count});
}

LentUpdates::Order LentUpdates::by_work(
    const std::vector<PlacedBatch>& batches) const {
  Order order(batches.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](int32_t b) {
    const PlacedBatch& batch = batches[index(b)];
    return rank_.rules[index(batch.group)]
               ->facts()
               .work({batch.dims[0], batch.dims[1]})
               .every_step *
           std::ssize(batch.members);
  });
  return order;
}

// ---- Pieces

// Widens into scratch if the gradient is bf16.
ConstRun LentUpdates::wide_gradient(Engine& engine, int32_t t, int64_t at,
                                    int64_t count) const {
  const Run gradient = rank_.gradient(t, at);
  if (gradient.dtype == DType::kFp32) return gradient;
  const Run wide = take_floats(engine, count);
  engine.convert(as_row(wide, count), as_row(gradient, count));
  return wide;
}

void LentUpdates::prepare(const PlacedRound& round) {
  rank_.guarded([&] {
    rank_.for_each(std::ssize(round.prepared), [&](Engine& lane, int64_t i) {
      prepare_piece(lane, round.prepared[index(i)]);
    });
  });
}

void LentUpdates::prepare_piece(Engine& engine,
                                const PreparedPiece& piece) const {
  const int32_t t = rank_.tensor_of(piece.matrix);
  const Rule& rule = rank_.rule_of(t);
  const auto num_fields = index(rule.facts().gather_fields());
  const int64_t all = piece.elements();
  if (!rank_.has_gradient(t)) {
    if (piece.to >= 0)
      engine.set_zero(
          rank_.slot(piece.to).data,
          all * static_cast<int64_t>(num_fields) * size_of(rank_.wire()));
    return;
  }
  const bool in_place = piece.to >= 0 && rank_.wire() == DType::kFp32;
  const bool at_once = in_place && rank_.gradient(t, 0).dtype == DType::kFp32;
  const int64_t most = at_once ? all : std::min(all, rank_.chunk());
  for (int64_t i = 0; i < all; i += most) {
    const Arena::Scope scope(engine.arena());
    const int64_t count = std::min(most, all - i);
    const auto in_slot = [&](size_t f) {
      return rank_.slot(piece.to + static_cast<int64_t>(f) * all + i);
    };
    ShardStates states;
    Shard shard = rank_.shard(t, rank_.dims[index(piece.matrix)], piece.at + i,
                              count, states);
    shard.grad = wide_gradient(engine, t, piece.at + i, count);
    Run fields[kMostFields];
    for (size_t f = 0; f < num_fields; ++f)
      fields[f] = in_place ? in_slot(f) : take_floats(engine, count);
    rule.prepare(engine, rank_.step_of(t), shard, {fields, num_fields});
    if (in_place || piece.to < 0) continue;
    for (size_t f = 0; f < num_fields; ++f)
      engine.convert(as_row(in_slot(f), count), as_row(fields[f], count));
  }
}

void LentUpdates::apply(const PlacedRound& round) {
  rank_.guarded([&] {
    rank_.for_each(std::ssize(round.applied), [&](Engine& lane, int64_t i) {
      apply_piece(lane, round.applied[index(i)]);
    });
    for (const ElementTensor& it : round.taken) {
      if (!rank_.has_gradient(it.tensor)) continue;
      const Run weights = rank_.weights(it.tensor, 0);
      rank_.lead.copy(as_row(weights, it.count),
                      as_row(rank_.wide_slot(it.at), it.count));
      if (uint16_t* rounded = rank_.rounded(it.tensor, 0))
        rank_.lead.round_to_bf16(rounded, canzona::elements<float>(weights),
                                 it.count);
    }
  });
}

void LentUpdates::apply_piece(Engine& engine, const AppliedPiece& piece) const {
  const int32_t t = rank_.tensor_of(piece.matrix);
  if (!rank_.has_gradient(t)) return;
  const int64_t all = piece.elements();
  const bool wide = rank_.wire() == DType::kFp32;
  const int64_t most = wide ? all : std::min(all, rank_.chunk());
  for (int64_t i = 0; i < all; i += most) {
    const Arena::Scope scope(engine.arena());
    const int64_t count = std::min(most, all - i);
    Run update = rank_.slot(piece.from + i);
    if (!wide) {
      const Run narrow = update;
      update = take_floats(engine, count);
      engine.convert(as_row(update, count), as_row(narrow, count));
    }
    ShardStates states;
    const Shard shard = rank_.shard(t, rank_.dims[index(piece.matrix)],
                                    piece.at + i, count, states);
    rank_.rule_of(t).apply(engine, rank_.step_of(t), shard, update);
  }
}

// ---- Matrices

// A part is a run of adjacent members with a gradient and the same step number.
template <class Work>
void LentUpdates::for_each_part(const PlacedBatch& batch,
                                const Work& work) const {
  const auto tensor = [&](int64_t i) {
    return rank_.tensor_of(batch.members[index(i)].matrix);
  };
  const auto count = std::ssize(batch.members);
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    end = begin + 1;
    if (!rank_.has_gradient(tensor(begin))) continue;
    const int64_t step = rank_.steps[index(tensor(begin))];
    while (end < count && rank_.has_gradient(tensor(end)) &&
           rank_.steps[index(tensor(end))] == step)
      ++end;
    work(begin, end);
  }
}

void LentUpdates::owned_states(const PlacedBatch& batch, int64_t begin,
                               OwnedStates& states) const {
  CANZONA_CHECK(batch.states.size() <= std::size(states), batch.states.size(),
                " states of an owner");
  for (size_t s = 0; s < batch.states.size(); ++s) {
    const size_t number = index(batch.states[s]);
    const int64_t each =
        rank_.schedule.memories[number] / std::ssize(batch.members);
    states[s] = run_of(rank_.memory.states[number] + begin * each);
  }
}

void LentUpdates::transform(size_t number) {
  const PlacedRound& round = rank_.schedule.rounds[number];
  const Order& order = orders_[number];
  if (!order.empty())
    rank_.repeated([&] {
      rank_.for_each(std::ssize(order), [&](Engine& lane, int64_t i) {
        const PlacedBatch& batch = round.batches[index(order[index(i)])];
        for_each_part(batch, [&](int64_t begin, int64_t end) {
          transform_matrices(lane, batch, begin, end);
        });
      });
    });
  if (round.shared.empty()) return;
  update_elements(round.shared, shared_[number]);
  rank_.guarded([&] {
    for (const ElementTensor& it : round.shared)
      if (rank_.has_gradient(it.tensor))
        rank_.lead.copy(as_row(rank_.wide_slot(it.at), it.count),
                        as_row(rank_.weights(it.tensor, 0), it.count));
  });
}

// Matrices are assembled outside the slot, where their alignment is the same on
// every rank.
void LentUpdates::transform_matrices(Engine& engine, const PlacedBatch& batch,
                                     int64_t begin, int64_t end) const {
  const Arena::Scope scope(engine.arena());
  const int64_t cols = batch.dims[1], each = batch.dims[0] * cols;
  const int64_t count = end - begin;
  const auto num_fields =
      index(rank_.rules[index(batch.group)]->facts().gather_fields());
  ConstRun fields[kMostFields];
  for (size_t f = 0; f < num_fields; ++f) {
    const Run field = take_floats(engine, count * each);
    for (int64_t i = 0; i < count; ++i)
      for (const SlotRectangle& r : batch.members[index(begin + i)].fields)
        copy_or_convert(
            engine, rectangle_in(advanced(field, i * each), r, cols),
            as_matrices(
                rank_.slot(r.at + static_cast<int64_t>(f) * r.field_stride),
                r.num_rows, r.num_cols));
    fields[f] = field;
  }
  const Run update = take_floats(engine, count * each);
  transform_fields(engine, batch, begin, count, {fields, num_fields}, update);
  for (int64_t i = 0; i < count; ++i)
    for (const SlotRectangle& r : batch.members[index(begin + i)].updates)
      copy_or_convert(engine,
                      as_matrices(rank_.slot(r.at), r.num_rows, r.num_cols),
                      rectangle_in(advanced(update, i * each), r, cols));
}

void LentUpdates::transform_fields(Engine& engine, const PlacedBatch& batch,
                                   int64_t begin, int64_t count,
                                   std::span<const ConstRun> fields,
                                   Run update) const {
  OwnedStates states;
  owned_states(batch, begin, states);
  const int32_t t = rank_.tensor_of(batch.members[index(begin)].matrix);
  rank_.rules[index(batch.group)]->transform(
      engine, rank_.step_of(t),
      {.dims = batch.dims,
       .count = count,
       .fields = fields,
       .out = update,
       .states = {states, batch.states.size()},
       .phase = batch.phase});
}

// ---- Matrices that are whole here

void LentUpdates::local() {
  if (!rank_.is_immediate) step_wholes_together();
  rank_.for_each(std::ssize(local_order_), [&](Engine& lane, int64_t i) {
    const PlacedBatch& batch =
        rank_.schedule.local[index(local_order_[index(i)])];
    const bool whole = can_step_whole(batch);
    if (whole && !rank_.is_immediate) return;
    for_each_part(batch, [&](int64_t begin, int64_t end) {
      if (whole)
        rank_.guarded([&] { step_whole(lane, batch, begin, end); });
      else
        step_by_stages(lane, batch, begin, end);
    });
  });
}

void LentUpdates::step_wholes_together() {
  const auto& batches = rank_.schedule.local;
  if (std::ranges::none_of(
          batches, [&](const PlacedBatch& b) { return can_step_whole(b); }))
    return;
  Engine& lead = rank_.lead;
  rank_.repeated([&] {
    for (Engine* other : rank_.all) other->wait_for(lead);
    for (const int32_t b : local_order_) {
      const PlacedBatch& batch = batches[index(b)];
      if (!can_step_whole(batch)) continue;
      for_each_part(batch, [&](int64_t begin, int64_t end) {
        step_whole(*engine_of_[index(b)], batch, begin, end);
      });
    }
    for (Engine* other : rank_.all) lead.wait_for(*other);
  });
}

// True if one call of the rule suffices: nothing is rounded between its stages
// and the pieces are contiguous. With some rules a device would have to capture
// the work anew whenever a gradient moves.
bool LentUpdates::can_step_whole(const PlacedBatch& batch) const {
  if (rank_.wire() != DType::kFp32) return false;
  const bool moves = rank_.rules[index(batch.group)]->lets_gradients_move();
  return std::ranges::all_of(batch.members, [&](const OwnedMatrix& one) {
    return (rank_.is_immediate || (moves && one.pieces.size() == 1)) &&
           std::ranges::all_of(one.pieces, [&](const PlacedPiece& p) {
             return has_all_columns(p, batch.dims[1]);
           });
  });
}

void LentUpdates::step_whole(Engine& engine, const PlacedBatch& batch,
                             int64_t begin, int64_t end) {
  const Arena::Scope scope(engine.arena());
  Room& room = room_of(engine);
  room.clear();
  for (int64_t i = begin; i < end; ++i)
    for (const PlacedPiece& p : batch.members[index(i)].pieces)
      add_shard(room, rank_.tensor_of(p.matrix), batch.dims, p.at,
                p.elements());
  engine.widen(room.widened);
  OwnedStates owned;
  owned_states(batch, begin, owned);
  const int32_t t = rank_.tensor_of(batch.members[index(begin)].matrix);
  const Step step = rank_.step_of(t);
  const WholeTensors tensors{.dims = batch.dims,
                             .shards = room.shards,
                             .owned = {owned, batch.states.size()},
                             .phase = batch.phase};
  rank_.rules[index(batch.group)]->step_whole(engine, step, tensors);
}

void LentUpdates::step_by_stages(Engine& engine, const PlacedBatch& batch,
                                 int64_t begin, int64_t end) const {
  const Arena::Scope scope(engine.arena());
  const int64_t each = batch.dims[0] * batch.dims[1];
  const int64_t count = end - begin;
  const auto num_fields =
      index(rank_.rules[index(batch.group)]->facts().gather_fields());
  const bool rounds = !rank_.is_immediate && rank_.wire() == DType::kBf16;
  Run fields[kMostFields];
  ConstRun gathered[kMostFields];
  for (size_t f = 0; f < num_fields; ++f)
    gathered[f] = fields[f] = take_floats(engine, count * each);
  const Run update = take_floats(engine, count * each);
  const auto for_each_piece = [&](const auto& work) {
    for (int64_t i = 0; i < count; ++i)
      for (const PlacedPiece& p : batch.members[index(begin + i)].pieces)
        work(p, i * each);
  };
  rank_.guarded([&] {
    for_each_piece([&](const PlacedPiece& p, int64_t at) {
      Run matrix[kMostFields];
      for (size_t f = 0; f < num_fields; ++f)
        matrix[f] = advanced(fields[f], at);
      prepare_local(engine, p, {matrix, num_fields});
    });
  });
  rank_.repeated([&] {
    if (rounds)
      for (size_t f = 0; f < num_fields; ++f)
        round_as_on_wire(engine, fields[f], count * each, rank_.chunk());
    transform_fields(engine, batch, begin, count, {gathered, num_fields},
                     update);
    if (rounds) round_as_on_wire(engine, update, count * each, rank_.chunk());
  });
  rank_.guarded([&] {
    for_each_piece([&](const PlacedPiece& p, int64_t at) {
      apply_local(engine, p, advanced(update, at));
    });
  });
}

// On CPUs works chunk by chunk, so that caches hold what is rounded; a device
// rounds all of it in its repeated work.
void LentUpdates::prepare_local(Engine& engine, const PlacedPiece& piece,
                                std::span<const Run> matrix) const {
  const int32_t t = rank_.tensor_of(piece.matrix);
  const Dims& dims = rank_.dims[index(piece.matrix)];
  const int64_t all = piece.elements();
  const bool in_place = has_all_columns(piece, dims[1]);
  const bool rounds = rank_.is_immediate && rank_.wire() == DType::kBf16;
  const bool at_once =
      !in_place || (!rounds && rank_.gradient(t, 0).dtype == DType::kFp32);
  const int64_t most = at_once ? all : std::min(all, rank_.chunk());
  for (int64_t i = 0; i < all; i += most) {
    const Arena::Scope scope(engine.arena());
    const int64_t count = std::min(most, all - i);
    ShardStates states;
    Shard shard = rank_.shard(t, dims, piece.at + i, count, states);
    shard.grad = wide_gradient(engine, t, piece.at + i, count);
    Run fields[kMostFields];
    for (size_t f = 0; f < matrix.size(); ++f)
      fields[f] = in_place ? advanced(matrix[f], piece.first_row * dims[1] + i)
                           : take_floats(engine, count);
    rank_.rule_of(t).prepare(engine, rank_.step_of(t), shard,
                             {fields, matrix.size()});
    for (size_t f = 0; f < matrix.size(); ++f) {
      if (rounds) round_as_on_wire(engine, fields[f], count, rank_.chunk());
      if (!in_place)
        engine.copy(rectangle_in(matrix[f], piece, dims[1]),
                    as_matrices(fields[f], piece.num_rows, piece.num_cols));
    }
  }
}

void LentUpdates::apply_local(Engine& engine, const PlacedPiece& piece,
                              Run matrix) const {
  const int32_t t = rank_.tensor_of(piece.matrix);
  const Dims& dims = rank_.dims[index(piece.matrix)];
  const int64_t all = piece.elements();
  const bool in_place = has_all_columns(piece, dims[1]);
  const bool rounds = rank_.is_immediate && rank_.wire() == DType::kBf16;
  const int64_t most = rounds && in_place ? std::min(all, rank_.chunk()) : all;
  for (int64_t i = 0; i < all; i += most) {
    const Arena::Scope scope(engine.arena());
    const int64_t count = std::min(most, all - i);
    Run update = advanced(matrix, piece.first_row * dims[1] + i);
    if (!in_place) {
      update = take_floats(engine, count);
      engine.copy(as_matrices(update, piece.num_rows, piece.num_cols),
                  rectangle_in(matrix, piece, dims[1]));
    }
    if (rounds) round_as_on_wire(engine, update, count, rank_.chunk());
    ShardStates states;
    const Shard shard = rank_.shard(t, dims, piece.at + i, count, states);
    rank_.rule_of(t).apply(engine, rank_.step_of(t), shard, update);
  }
}

// ---- Elements

std::vector<LentUpdates::Chunk> LentUpdates::chunks_of(
    const std::vector<ElementTensor>& tensors) const {
  std::vector<Chunk> chunks;
  for (const ElementTensor& it : tensors)
    for (int64_t at = 0; at < it.count; at += rank_.chunk())
      chunks.push_back({it.tensor, at, std::min(rank_.chunk(), it.count - at)});
  return chunks;
}

void LentUpdates::elements() {
  update_elements(rank_.schedule.elements, chunks_);
}

// Lanes process chunks; a device processes all tensors at once.
void LentUpdates::update_elements(const std::vector<ElementTensor>& tensors,
                                  const std::vector<Chunk>& chunks) {
  rank_.guarded([&] {
    if (!rank_.is_immediate) return update_together(tensors);
    rank_.for_each(std::ssize(chunks), [&](Engine& lane, int64_t i) {
      update_chunk(lane, chunks[index(i)]);
    });
  });
}

void LentUpdates::update_chunk(Engine& engine, const Chunk& chunk) const {
  const int32_t t = chunk.tensor;
  if (!rank_.has_gradient(t)) return;
  const Arena::Scope scope(engine.arena());
  ShardStates states;
  Shard shard =
      rank_.shard(t, rank_.tensor(t).shape, chunk.at, chunk.count, states);
  shard.grad = wide_gradient(engine, t, chunk.at, chunk.count);
  rank_.rule_of(t).step_whole(
      engine, rank_.step_of(t),
      {.dims = rank_.tensor(t).shape, .shards = {&shard, 1}});
}

// Batches adjacent tensors as long as they have the same rule and step number
// and their converted gradients fit into scratch.
void LentUpdates::update_together(const std::vector<ElementTensor>& tensors) {
  Engine& engine = rank_.lead;
  Room& room = room_of(engine);
  size_t next = 0;
  while (next < tensors.size()) {
    const int32_t first = tensors[next].tensor;
    if (!rank_.has_gradient(first)) {
      ++next;
      continue;
    }
    const Arena::Scope scope(engine.arena());
    int64_t converted = 0;
    room.clear();
    for (; next < tensors.size(); ++next) {
      const auto [t, count, at] = tensors[next];
      if (!rank_.has_gradient(t)) continue;
      const bool joins = rank_.tensor(t).group == rank_.tensor(first).group &&
                         rank_.steps[index(t)] == rank_.steps[index(first)];
      if (!joins || converted > rank_.chunk()) break;
      add_shard(room, t, rank_.tensor(first).shape, 0, count);
      if (rank_.gradients[index(t)].dtype == DType::kBf16) converted += count;
    }
    engine.widen(room.widened);
    rank_.rule_of(first).step_whole(
        engine, rank_.step_of(first),
        {.dims = rank_.tensor(first).shape, .shards = room.shards});
  }
}

}  // namespace canzona

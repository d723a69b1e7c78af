#include "canzona/runtime/lent/lent_updates.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "canzona/base/check.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

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

bool has_all_columns(const Piece& piece, int64_t cols) {
  return piece.num_cols == cols;
}

// Returns the distance between pieces that an algebra takes as groups of rows:
// equally high and equally far apart. Returns 0 for other pieces.
int64_t distance_of_groups(const std::vector<Piece>& pieces) {
  if (pieces.size() == 1) return 0;
  const Piece& first = pieces[0];
  const int64_t step = pieces[1].parameter - first.parameter;
  int64_t next = first.parameter;
  for (const Piece& p : pieces) {
    if (p.num_rows != first.num_rows || p.parameter != next) return 0;
    next += step;
  }
  return first.num_rows % Algebra::kGroupRows == 0 ? step : 0;
}

}  // namespace

LentUpdates::LentUpdates(const LentRank& rank)
    : rank_(rank), stored_(rank), stages_(stored_, rank) {
  for (const PlacedRound& round : rank.schedule.rounds) {
    batches_.push_back(matrix_batches(round.batches, round.computed));
    orders_.push_back(by_segment(round.batches));
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
  for (const UpdateBatch& batch : rank_.schedule.local) {
    size_t pieces = 0;
    for (const int32_t k : batch.members)
      pieces += stored_.matrix(k).pieces.size();
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
                            int64_t at, int64_t count,
                            const RowGroups& groups) const {
  Run* states = room.states.data() + room.shards.size() * kMostShardStates;
  room.shards.push_back(rank_.shard(t, whole, at, count, states));
  const Run gradient = rank_.gradient(t, at);
  const int64_t each = count / groups.count;
  Shard& shard = room.shards.back();
  shard.group_rows = groups.rows;
  shard.skip = groups.count > 1 ? groups.apart - each : 0;
  shard.grad = gradient;
  shard.grad_skip = shard.skip;
  if (gradient.dtype == DType::kFp32) return;
  const Run wide = take_floats(*room.engine, count);
  shard.grad = wide;
  shard.grad_skip = 0;
  for (int64_t g = 0; g < groups.count; ++g)
    room.widened.push_back(
        {canzona::elements<float>(wide) + g * each,
         reinterpret_cast<const uint16_t*>(gradient.data) + g * groups.apart,
         each});
}

LentUpdates::Order LentUpdates::by_work(
    const std::vector<UpdateBatch>& batches) const {
  Order order(batches.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::ranges::greater(), [&](int32_t b) {
    const UpdateBatch& batch = batches[index(b)];
    return rank_.rules[index(batch.rule)]
               ->facts()
               .work({batch.dims[0], batch.dims[1]})
               .every_step *
           std::ssize(batch.members);
  });
  return order;
}

std::vector<LentUpdates::Order> LentUpdates::by_segment(
    const std::vector<UpdateBatch>& batches) const {
  std::vector<Order> orders(1);
  for (const UpdateBatch& batch : batches)
    orders.resize(std::max(orders.size(), index(batch.segment) + 1));
  for (const int32_t b : by_work(batches))
    orders[index(batches[index(b)].segment)].push_back(b);
  return orders;
}

// ---- Pieces

void LentUpdates::prepare(const PlacedRound& round) {
  rank_.guarded([&] {
    rank_.for_each(std::ssize(round.prepared), [&](Engine& lane, int64_t i) {
      stages_.prepare(lane, round.prepared[index(i)], rank_.slots());
    });
  });
}

void LentUpdates::apply(const PlacedRound& round) {
  rank_.guarded([&] {
    rank_.for_each(std::ssize(round.applied), [&](Engine& lane, int64_t i) {
      stages_.apply(lane, round.applied[index(i)], rank_.slots());
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

// ---- Matrices

void LentUpdates::transform(size_t number, int32_t segment) {
  const PlacedRound& round = rank_.schedule.rounds[number];
  const Order& order = orders_[number].at(index(segment));
  if (!order.empty())
    rank_.repeated([&] {
      rank_.for_each(std::ssize(order), [&](Engine& lane, int64_t i) {
        stages_.transform(lane, batches_[number][index(order[index(i)])],
                          rank_.slots());
      });
    });
  if (round.shared.empty() || segment > 0) return;
  update_elements(round.shared, shared_[number]);
  rank_.guarded([&] {
    for (const ElementTensor& it : round.shared)
      if (rank_.has_gradient(it.tensor))
        rank_.lead.copy(as_row(rank_.wide_slot(it.at), it.count),
                        as_row(rank_.weights(it.tensor, 0), it.count));
  });
}

// ---- Teams

TeamStages& LentUpdates::teams() {
  if (teams_ != nullptr) return *teams_;
  std::vector<std::vector<TeamWork>> rounds;
  for (const PlacedRound& round : rank_.schedule.rounds) {
    std::vector<TeamWork>& works = rounds.emplace_back();
    std::byte* room = rank_.memory.rooms;
    for (size_t i = 0; i < round.teams.size(); ++i) {
      const SharedMatrix& team = round.teams[i];
      const PlacedMatrix& matrix = rank_.plan.matrices[index(team.matrix)];
      TeamWork& work = works.emplace_back();
      work.planned = &team;
      work.shape = {matrix.rows, matrix.cols};
      work.tensor = rank_.tensor(matrix.tensor).name;
      work.rule = &rank_.rule_of(matrix.tensor);
      work.phase = matrix.phase;
      for (const KeptState& state : round.team_states[i].own)
        work.states.push_back(run_of(stored_.owned(state)));
      work.room = room;
      room += team_room(team).bytes;
    }
  }
  teams_ = std::make_unique<TeamStages>(rank_.lead, std::move(rounds));
  return *teams_;
}

int32_t LentUpdates::team_tensor(const PlacedAction& action) const {
  const PlacedRound& round = rank_.schedule.rounds[index(action.item)];
  return rank_.plan.matrices[index(round.teams[index(action.team)].matrix)]
      .tensor;
}

void LentUpdates::team_stage(const PlacedAction& action) {
  const int32_t tensor = team_tensor(action);
  if (!rank_.has_gradient(tensor)) return;
  TeamStages& stages = teams();
  rank_.repeated([&] {
    stages.run(action.kind, index(action.item), index(action.team),
               action.segment, rank_.step_of(tensor).step, rank_.slots());
  });
}

bool LentUpdates::needs(const PlacedAction& action, int64_t step) const {
  const PlacedRound& round = rank_.schedule.rounds[index(action.item)];
  const SharedMatrix& team = round.teams[index(action.team)];
  const int32_t tensor = team_tensor(action);
  const bool with_factors =
      !team.facts.factors_at_refresh ||
      rank_.rule_of(tensor).facts().refreshes(
          step, rank_.plan.matrices[index(team.matrix)].phase);
  return is_exchanged(team.facts, action.purpose, with_factors);
}

// ---- Matrices that are whole here

void LentUpdates::local() {
  if (!rank_.is_immediate) step_wholes_together();
  rank_.for_each(std::ssize(local_order_), [&](Engine& lane, int64_t i) {
    const UpdateBatch& batch =
        rank_.schedule.local[index(local_order_[index(i)])];
    const bool whole = can_step_whole(batch);
    if (whole && !rank_.is_immediate) return;
    stages_.for_each_part(batch, [&](int64_t begin, int64_t end) {
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
          batches, [&](const UpdateBatch& b) { return can_step_whole(b); }))
    return;
  Engine& lead = rank_.lead;
  rank_.repeated([&] {
    for (Engine* other : rank_.all) other->wait_for(lead);
    for (const int32_t b : local_order_) {
      const UpdateBatch& batch = batches[index(b)];
      if (!can_step_whole(batch)) continue;
      stages_.for_each_part(batch, [&](int64_t begin, int64_t end) {
        step_whole(*engine_of_[index(b)], batch, begin, end);
      });
    }
    for (Engine* other : rank_.all) lead.wait_for(*other);
  });
}

bool LentUpdates::sends_bf16() const { return rank_.wire() == DType::kBf16; }

// True if one call of the rule suffices: the pieces are contiguous or groups of
// rows that the rule takes, and the rule can round between its stages if that is
// asked for. With some rules a device would have to capture the work anew
// whenever a gradient moves.
bool LentUpdates::can_step_whole(const UpdateBatch& batch) const {
  const Rule& rule = *rank_.rules[index(batch.rule)];
  if (sends_bf16() && !rule.steps_whole_as_sent(rank_.lead)) return false;
  const bool moves = rule.lets_gradients_move();
  const int64_t rows = group_rows(batch);
  const bool in_groups = rows == 0 || rule.steps_whole_in_groups(rank_.lead);
  return std::ranges::all_of(batch.members, [&](int32_t k) {
    const std::vector<Piece>& pieces = stored_.matrix(k).pieces;
    const bool fused =
        pieces.size() == 1 ||
        (pieces[0].num_rows == rows && distance_of_groups(pieces) != 0);
    return (rank_.is_immediate || (moves && in_groups && fused)) &&
           std::ranges::all_of(pieces, [&](const Piece& p) {
             return has_all_columns(p, batch.dims[1]);
           });
  });
}

// Returns the rows of a piece of the first matrix that is not contiguous, 0 if
// all are.
int64_t LentUpdates::group_rows(const UpdateBatch& batch) const {
  for (const int32_t k : batch.members) {
    const std::vector<Piece>& pieces = stored_.matrix(k).pieces;
    if (pieces.size() > 1) return pieces[0].num_rows;
  }
  return 0;
}

void LentUpdates::step_whole(Engine& engine, const UpdateBatch& batch,
                             int64_t begin, int64_t end) {
  const Arena::Scope scope(engine.arena());
  Room& room = room_of(engine);
  room.clear();
  const int64_t rows = rank_.is_immediate ? 0 : group_rows(batch);
  for (int64_t i = begin; i < end; ++i) {
    const int32_t t = rank_.tensor_of(batch.members[index(i)]);
    const auto& pieces = stored_.matrix(batch.members[index(i)]).pieces;
    if (rows > 0)
      add_shard(room, t, batch.dims, pieces[0].parameter,
                batch.dims[0] * batch.dims[1],
                {std::ssize(pieces), rows, distance_of_groups(pieces)});
    else
      for (const Piece& p : pieces)
        add_shard(room, t, batch.dims, p.parameter, p.elements());
  }
  engine.widen(room.widened);
  const MatrixStages::OwnedStates owned(stored_, batch, begin);
  const Step step = stored_.step_of(batch.members[index(begin)]);
  const WholeTensors tensors{.dims = batch.dims,
                             .shards = room.shards,
                             .owned = owned.all(),
                             .phase = batch.phase,
                             .as_sent = sends_bf16()};
  rank_.rules[index(batch.rule)]->step_whole(engine, step, tensors);
}

void LentUpdates::step_by_stages(Engine& engine, const UpdateBatch& batch,
                                 int64_t begin, int64_t end) const {
  const Arena::Scope scope(engine.arena());
  const int64_t each = batch.dims[0] * batch.dims[1];
  const int64_t count = end - begin;
  const auto num_fields =
      index(rank_.rules[index(batch.rule)]->facts().gather_fields());
  const bool rounds = !rank_.is_immediate && sends_bf16();
  Run fields[kMostFields];
  ConstRun gathered[kMostFields];
  for (size_t f = 0; f < num_fields; ++f)
    gathered[f] = fields[f] = take_floats(engine, count * each);
  const Run update = take_floats(engine, count * each);
  const auto for_each_piece = [&](const auto& work) {
    for (int64_t i = 0; i < count; ++i)
      for (const Piece& p :
           stored_.matrix(batch.members[index(begin + i)]).pieces)
        work(batch.members[index(begin + i)], p, i * each);
  };
  rank_.guarded([&] {
    for_each_piece([&](int32_t kept, const Piece& p, int64_t at) {
      Run matrix[kMostFields];
      for (size_t f = 0; f < num_fields; ++f)
        matrix[f] = advanced(fields[f], at);
      prepare_local(engine, kept, p, {matrix, num_fields});
    });
  });
  rank_.repeated([&] {
    if (rounds)
      for (size_t f = 0; f < num_fields; ++f)
        round_as_on_wire(engine, fields[f], count * each, rank_.chunk());
    stages_.transform_fields(engine, batch, begin, count,
                             {gathered, num_fields}, update);
    if (rounds) round_as_on_wire(engine, update, count * each, rank_.chunk());
  });
  rank_.guarded([&] {
    for_each_piece([&](int32_t kept, const Piece& p, int64_t at) {
      apply_local(engine, kept, p, advanced(update, at));
    });
  });
}

// On CPUs works chunk by chunk, so that caches hold what is rounded; a device
// rounds all of it in its repeated work.
void LentUpdates::prepare_local(Engine& engine, int32_t kept,
                                const Piece& piece,
                                std::span<const Run> matrix) const {
  const Dims& dims = stored_.matrix(kept).dims;
  const int64_t all = piece.elements();
  const bool in_place = has_all_columns(piece, dims[1]);
  const bool rounds = rank_.is_immediate && sends_bf16();
  const bool at_once =
      !in_place ||
      (!rounds && stored_.gradient(kept, piece, 0).dtype == DType::kFp32);
  const int64_t most = at_once ? all : std::min(all, rank_.chunk());
  for (int64_t i = 0; i < all; i += most) {
    const Arena::Scope scope(engine.arena());
    const int64_t count = std::min(most, all - i);
    ShardStates states;
    Shard shard = stored_.shard(kept, piece, i, count, states);
    shard.grad = stages_.wide_gradient(engine, kept, piece, i, count);
    Run fields[kMostFields];
    for (size_t f = 0; f < matrix.size(); ++f)
      fields[f] = in_place ? advanced(matrix[f], piece.first_row * dims[1] + i)
                           : take_floats(engine, count);
    stored_.rule_of(kept).prepare(engine, stored_.step_of(kept), shard,
                                  {fields, matrix.size()});
    for (size_t f = 0; f < matrix.size(); ++f) {
      if (rounds) round_as_on_wire(engine, fields[f], count, rank_.chunk());
      if (!in_place)
        engine.copy(rectangle_in(matrix[f], piece, dims[1]),
                    as_matrices(fields[f], piece.num_rows, piece.num_cols));
    }
  }
}

void LentUpdates::apply_local(Engine& engine, int32_t kept, const Piece& piece,
                              Run matrix) const {
  const Dims& dims = stored_.matrix(kept).dims;
  const int64_t all = piece.elements();
  const bool in_place = has_all_columns(piece, dims[1]);
  const bool rounds = rank_.is_immediate && sends_bf16();
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
    const Shard shard = stored_.shard(kept, piece, i, count, states);
    stored_.rule_of(kept).apply(engine, stored_.step_of(kept), shard, update);
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
  shard.grad = widened(engine, rank_.gradient(t, chunk.at), chunk.count);
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

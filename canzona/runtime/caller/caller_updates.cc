#include "canzona/runtime/caller/caller_updates.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>

#include "canzona/base/check.h"
#include "canzona/rules/runs.h"

namespace canzona::runtime {
namespace {

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

CallerUpdates::CallerUpdates(const CallerRank& rank)
    : rank_(rank),
      stages_(rank, rank, rank.schedule.rounds, rank.schedule.updates, true),
      local_order_(stages_.by_work(rank.schedule.local())) {
  for (const Round& round : rank.schedule.rounds)
    shared_.push_back(chunks_of(round.given));
  std::map<Dims, size_t> number;  // numbers shapes by descending work
  engine_of_.resize(local_order_.size());
  for (const int32_t b : local_order_) {
    const auto shape =
        number.try_emplace(rank.schedule.local()[index(b)].dims, number.size())
            .first;
    engine_of_[index(b)] = rank.all[shape->second % rank.all.size()];
  }
  chunks_ = chunks_of(rank.schedule.elements);
  make_rooms();
  lay_out_here();
}

void CallerUpdates::Room::reserve(size_t most) {
  shards.reserve(most);
  states.resize(most * kMostShardStates);
  widened.reserve(most);
}

void CallerUpdates::Room::clear() {
  shards.clear();
  widened.clear();
}

void CallerUpdates::make_rooms() {
  size_t most = rank_.schedule.elements.size();
  for (const Round& round : rank_.schedule.rounds)
    most = std::max(most, round.given.size());
  for (const UpdateBatch& batch : rank_.schedule.local()) {
    size_t pieces = 0;
    for (const int32_t k : batch.members)
      pieces += rank_.matrix(k).pieces.size();
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

CallerUpdates::Room& CallerUpdates::room_of(const Engine& engine) {
  return *std::ranges::find(rooms_, &engine, &Room::engine);
}

void CallerUpdates::add_shard(Room& room, int32_t t, const Dims& whole,
                              int64_t at, int64_t count,
                              const RowGroups& groups) const {
  Run* states = room.states.data() + room.shards.size() * kMostShardStates;
  room.shards.push_back(rank_.stored_shard(t, whole, at, count, states));
  const Run gradient = rank_.stored_gradient(t, at);
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

void CallerUpdates::run(const ScheduleEntry& entry) {
  if (entry.kind == EntryKind::kUpdateElements) return elements();
  if (entry.kind == EntryKind::kUpdateMatrices) return local();
  stages_.run(entry);
  if (entry.kind == EntryKind::kTransform && entry.segment == 0)
    send_elements(index(entry.round));
  if (entry.kind == EntryKind::kApply)
    take_elements(rank_.schedule.rounds[index(entry.round)]);
}

// ---- Elements that replicas share

void CallerUpdates::send_elements(size_t number) {
  const Round& round = rank_.schedule.rounds[number];
  if (round.given.empty()) return;
  update_elements(round.given, shared_[number]);
  rank_.guarded([&] {
    for (const ElementTensor& it : round.given) {
      if (!rank_.tensor_has_gradient(it.tensor)) continue;
      const Arena::Scope scope(rank_.lead.arena());
      const float* const weights =
          restored(rank_.lead, rank_.weights(it.tensor, 0), it.count);
      rank_.lead.copy(as_row(rank_.wide_slot(round, it.at), it.count),
                      as_row(run_of(weights), it.count));
    }
  });
}

void CallerUpdates::take_elements(const Round& round) {
  if (round.taken.empty()) return;
  rank_.guarded([&] {
    for (const ElementTensor& it : round.taken) {
      if (!rank_.tensor_has_gradient(it.tensor)) continue;
      store(rank_.lead, rank_.weights(it.tensor, 0),
            canzona::elements<float>(rank_.wide_slot(round, it.at)), it.count);
    }
  });
}

// ---- Matrices that are whole here

void CallerUpdates::local() {
  if (!rank_.is_immediate) step_wholes_together();
  rank_.for_each(std::ssize(local_order_), [&](Engine& lane, int64_t i) {
    const UpdateBatch& batch =
        rank_.schedule.local()[index(local_order_[index(i)])];
    const bool whole = can_step_whole(batch);
    if (whole && !rank_.is_immediate) return;
    stages_.matrices().for_each_part(batch, [&](int64_t begin, int64_t end) {
      if (whole)
        rank_.guarded([&] { step_whole(lane, batch, begin, end); });
      else
        step_by_stages(lane, batches_here_[index(local_order_[index(i)])],
                       begin, end);
    });
  });
}

void CallerUpdates::step_wholes_together() {
  const auto& batches = rank_.schedule.local();
  if (std::ranges::none_of(
          batches, [&](const UpdateBatch& b) { return can_step_whole(b); }))
    return;
  Engine& lead = rank_.lead;
  rank_.repeated([&] {
    for (Engine* other : rank_.all) other->wait_for(lead);
    for (const int32_t b : local_order_) {
      const UpdateBatch& batch = batches[index(b)];
      if (!can_step_whole(batch)) continue;
      stages_.matrices().for_each_part(batch, [&](int64_t begin, int64_t end) {
        step_whole(*engine_of_[index(b)], batch, begin, end);
      });
    }
    for (Engine* other : rank_.all) lead.wait_for(*other);
  });
}

bool CallerUpdates::sends_bf16() const { return rank_.wire() == DType::kBf16; }

// True if one call of the rule suffices: the pieces are contiguous or groups of
// rows that the rule takes, and the rule can round between its stages if that
// is asked for. With some rules a device would have to capture the work anew
// whenever a gradient moves.
bool CallerUpdates::can_step_whole(const UpdateBatch& batch) const {
  const Rule& rule = *rank_.rules[index(batch.rule)];
  const auto is_restored = [&](int32_t kept) {
    return rank_.weights(rank_.tensor_of_kept(kept), 0).remainder != nullptr;
  };
  if (std::ranges::any_of(batch.members, is_restored)) return false;
  if (sends_bf16() && !rule.steps_whole_as_sent(rank_.lead)) return false;
  const bool moves = rule.lets_gradients_move();
  const int64_t rows = group_rows(batch);
  const bool in_groups = rows == 0 || rule.steps_whole_in_groups(rank_.lead);
  return std::ranges::all_of(batch.members, [&](int32_t k) {
    const std::vector<Piece>& pieces = rank_.matrix(k).pieces;
    const bool fused = pieces.size() == 1 || (pieces[0].num_rows == rows &&
                                              distance_of_groups(pieces) != 0);
    return (rank_.is_immediate || (moves && in_groups && fused)) &&
           std::ranges::all_of(pieces, [&](const Piece& p) {
             return has_all_columns(p, batch.dims[1]);
           });
  });
}

// Returns the rows of a piece of the first matrix that is not contiguous, 0 if
// all are.
int64_t CallerUpdates::group_rows(const UpdateBatch& batch) const {
  for (const int32_t k : batch.members) {
    const std::vector<Piece>& pieces = rank_.matrix(k).pieces;
    if (pieces.size() > 1) return pieces[0].num_rows;
  }
  return 0;
}

void CallerUpdates::step_whole(Engine& engine, const UpdateBatch& batch,
                               int64_t begin, int64_t end) {
  const Arena::Scope scope(engine.arena());
  Room& room = room_of(engine);
  room.clear();
  const int64_t rows = rank_.is_immediate ? 0 : group_rows(batch);
  for (int64_t i = begin; i < end; ++i) {
    const int32_t kept = batch.members[index(i)];
    const int32_t t = rank_.tensor_of_kept(kept);
    const std::vector<Piece>& pieces = rank_.matrix(kept).pieces;
    if (rows > 0)
      add_shard(room, t, batch.dims, pieces[0].parameter,
                batch.dims[0] * batch.dims[1],
                {std::ssize(pieces), rows, distance_of_groups(pieces)});
    else
      for (const Piece& p : pieces)
        add_shard(room, t, batch.dims, p.parameter, p.elements());
  }
  engine.widen(room.widened);
  const MatrixStages::OwnedStates owned(rank_, batch, begin);
  const Step step = rank_.step_of(batch.members[index(begin)]);
  const WholeTensors tensors{.dims = batch.dims,
                             .shards = room.shards,
                             .owned = owned.all(),
                             .phase = batch.phase,
                             .as_sent = sends_bf16()};
  rank_.rules[index(batch.rule)]->step_whole(engine, step, tensors);
}

// Fields of all matrices of a batch follow each other, then their updates.
// Pieces that have all columns lie where they are in the matrix, so that it is
// transformed in place.
void CallerUpdates::lay_out_here() {
  for (const UpdateBatch& batch : rank_.schedule.local()) {
    const int64_t cols = batch.dims[1], each = batch.dims[0] * cols;
    const int64_t all = each * std::ssize(batch.members);
    const int64_t fields =
        rank_.rules[index(batch.rule)]->facts().gather_fields();
    std::vector<SlotPiece>& prepared = prepared_.emplace_back();
    std::vector<SlotPiece>& applied = applied_.emplace_back();
    slot_elements_.push_back((fields + 1) * all);
    for (size_t i = 0; i < batch.members.size(); ++i) {
      const int32_t kept = batch.members[i];
      SlotMatrix& one = here_.emplace_back();
      one.kept = kept;
      one.own = {0, batch.dims[0], 0, cols};
      const std::vector<Piece>& pieces = rank_.matrix(kept).pieces;
      const bool whole = std::ranges::all_of(
          pieces, [&](const Piece& p) { return has_all_columns(p, cols); });
      int64_t at = static_cast<int64_t>(i) * each;
      if (whole) one.rectangles.push_back({one.own, at, all});
      for (size_t p = 0; p < pieces.size(); ++p) {
        const SlotRectangle r{pieces[p], at, all};
        prepared.push_back({r, kept, static_cast<int32_t>(p)});
        applied.push_back(prepared.back());
        applied.back().at += fields * all;
        if (!whole) one.rectangles.push_back(r);
        at += pieces[p].elements();
      }
      one.updates = one.rectangles;
      for (SlotRectangle& r : one.updates) r.at += fields * all;
    }
  }
  std::ranges::sort(here_, {}, &SlotMatrix::kept);
  batches_here_ = matrix_batches(rank_.schedule.local(), here_);
  for (MatrixBatch& batch : batches_here_) batch.is_here = true;
}

void CallerUpdates::step_by_stages(Engine& engine, const MatrixBatch& batch,
                                   int64_t begin, int64_t end) const {
  const Arena::Scope scope(engine.arena());
  const size_t b = index(batch.planned - rank_.schedule.local().data());
  const Run slot{engine.arena().take(slot_elements_[b] * size_of(rank_.wire())),
                 rank_.wire()};
  const auto for_each_piece = [&](const std::vector<SlotPiece>& pieces,
                                  const auto& work) {
    const auto members = std::span(batch.planned->members)
                             .subspan(index(begin), index(end - begin));
    rank_.guarded([&] {
      for (const SlotPiece& piece : pieces)
        if (std::ranges::count(members, piece.kept) > 0) work(piece);
    });
  };
  const MatrixStages& stages = stages_.matrices();
  for_each_piece(prepared_[b], [&](const SlotPiece& piece) {
    stages.prepare(engine, piece, slot);
  });
  rank_.repeated(
      [&] { stages.transform_part(engine, batch, begin, end, slot); });
  for_each_piece(applied_[b], [&](const SlotPiece& piece) {
    stages.apply(engine, piece, slot);
  });
}

// ---- Elements

std::vector<CallerUpdates::Chunk> CallerUpdates::chunks_of(
    const std::vector<ElementTensor>& tensors) const {
  std::vector<Chunk> chunks;
  for (const ElementTensor& it : tensors)
    for (int64_t at = 0; at < it.count; at += rank_.chunk())
      chunks.push_back({it.tensor, at, std::min(rank_.chunk(), it.count - at)});
  return chunks;
}

// Lanes process chunks; a device processes all tensors at once.
void CallerUpdates::update_elements(const std::vector<ElementTensor>& tensors,
                                    const std::vector<Chunk>& chunks) {
  rank_.guarded([&] {
    if (!rank_.is_immediate) return update_together(tensors);
    rank_.for_each(std::ssize(chunks), [&](Engine& lane, int64_t i) {
      update_chunk(lane, chunks[index(i)]);
    });
  });
}

void CallerUpdates::update_chunk(Engine& engine, const Chunk& chunk) const {
  const int32_t t = chunk.tensor;
  if (!rank_.tensor_has_gradient(t)) return;
  const Arena::Scope scope(engine.arena());
  ShardStates states;
  Shard shard = rank_.stored_shard(t, rank_.tensor(t).shape, chunk.at,
                                   chunk.count, states);
  shard.grad = widened(engine, rank_.stored_gradient(t, chunk.at), chunk.count);
  rank_.rule_of_tensor(t).step_stored(
      engine, rank_.step_of_tensor(t),
      {.dims = rank_.tensor(t).shape, .shards = {&shard, 1}});
}

// Batches adjacent tensors as long as they have the same rule and step number
// and their converted gradients fit into scratch.
void CallerUpdates::update_together(const std::vector<ElementTensor>& tensors) {
  Engine& engine = rank_.lead;
  Room& room = room_of(engine);
  size_t next = 0;
  while (next < tensors.size()) {
    const int32_t first = tensors[next].tensor;
    if (!rank_.tensor_has_gradient(first)) {
      ++next;
      continue;
    }
    const Arena::Scope scope(engine.arena());
    int64_t converted = 0;
    room.clear();
    for (; next < tensors.size(); ++next) {
      const auto [t, count, at] = tensors[next];
      if (!rank_.tensor_has_gradient(t)) continue;
      const bool joins = rank_.tensor(t).group == rank_.tensor(first).group &&
                         rank_.steps[index(t)] == rank_.steps[index(first)];
      if (!joins || converted > rank_.chunk()) break;
      add_shard(room, t, rank_.tensor(first).shape, 0, count);
      if (rank_.gradients[index(t)].dtype == DType::kBf16) converted += count;
    }
    engine.widen(room.widened);
    rank_.rule_of_tensor(first).step_stored(
        engine, rank_.step_of_tensor(first),
        {.dims = rank_.tensor(first).shape, .shards = room.shards});
  }
}

}  // namespace canzona::runtime

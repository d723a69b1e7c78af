#include "canzona/runtime/step/updates.h"

#include <algorithm>
#include <functional>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

// The schedule's entry that an update executes.
ShownEntry shown_update(Rank& rank, EntryKind kind) {
  return rank.show(
      *std::ranges::find(rank.entries.step(), kind, &ScheduleEntry::kind));
}

}  // namespace

LocalUpdate::Batch::Batch(Rank& rank, const UpdateBatch& of)
    : planned(of),
      entry(rank.rules.entry(of.rule)),
      tensors(*entry.rule, of.dims, of.phase),
      label(rank.label(cat(of.members.size(), " x ", to_string(of.dims)))) {
  // A matrix may be stored in pieces, such as the q of an interleaved qkv.
  for (int32_t k : of.members) add_pieces(rank, index(k), tensors);
  for (const KeptState& state : of.owned)
    tensors.add_owned(run_of(rank.store.states() + state.first));
}

LocalUpdate::LocalUpdate(Rank& rank, Publisher& publisher)
    : rank_(rank),
      publisher_(publisher),
      shown_(shown_update(rank, EntryKind::kUpdateMatrices)) {
  for (const UpdateBatch& planned : rank.updates.batches.at(0))
    batches_.emplace_back(rank, planned);
}

void LocalUpdate::run(int64_t step, double learning_rate) {
  const Span whole(rank_.track, shown_.span);
  for (const Batch& batch : batches_) {
    const Span span(rank_.track, "update", batch.label);
    rank_.engines.repeated([&] {
      batch.tensors.step(
          rank_.engine,
          {step, learning_rate * batch.entry.learning_rate_factor});
    });
    for (int32_t k : batch.planned.members) publisher_.updated(index(k));
  }
}

ElementUpdate::ElementUpdate(Rank& rank, Publisher& publisher)
    : rank_(rank),
      publisher_(publisher),
      shown_(shown_update(rank, EntryKind::kUpdateElements)) {
  float* states = rank.store.states();
  for (const KeptElements& elements : rank.kept.elements) {
    const int32_t rule = rank.rules.number_of(elements.tensor);
    TensorBatch& batch =
        batches_.try_emplace(rule, *rank.rules.entry(rule).rule, Dims{1})
            .first->second;
    const Run moments[] = {
        run_of(states + rank.updates.exp_avg + elements.kept),
        run_of(states + rank.updates.exp_avg_sq + elements.kept)};
    batch.add({.whole = batch.dims(),
               .count = elements.in_shard.count,
               .grad = const_run(rank.store.gradients() + elements.gradient),
               .weights = run_of(rank.store.weights(elements)),
               .states = moments,
               .rounded = rank.store.rounded_copy(elements.parameter)});
  }
}

void ElementUpdate::run(int64_t step, const ElementRates& rates) {
  const Span span(rank_.track, shown_.span);
  for (const auto& [rule, batch] : batches_) {
    const RuleSet::Entry& entry = rank_.rules.entry(rule);
    const double rate = entry.of_matrices ? rates.matrices : rates.others;
    rank_.engines.repeated([&] {
      batch.step(rank_.engine, {step, rate * entry.learning_rate_factor});
    });
  }
  publisher_.updated_elements();
}

namespace {

// Views of rectangles, in assembled matrices and packed in a slot.

// A rectangle of a matrix with sides `dims`.
Matrices in_matrix(Run matrix, const SlotRectangle& r,
                   const std::vector<int64_t>& dims) {
  Matrices view =
      as_matrices(advanced(matrix, r.first_row * dims[1] + r.first_col),
                  r.num_rows, r.num_cols);
  view.row_stride = dims[1];
  return view;
}

// The same rectangle in a slot.
Matrices in_slot(float* slot, const SlotRectangle& r, int64_t field) {
  return matrices(slot + r.at + field * r.field_stride, r.num_rows, r.num_cols);
}

// A rectangle of a matrix, in a piece that contains it.
Matrices in_piece(Run piece, const Rectangle& r, const Rectangle& whole) {
  Matrices view = as_matrices(
      advanced(piece, (r.first_row - whole.first_row) * whole.num_cols +
                          r.first_col - whole.first_col),
      r.num_rows, r.num_cols);
  view.row_stride = whole.num_cols;
  return view;
}

}  // namespace

ExchangedUpdate::ExchangedUpdate(Rank& rank, Publisher& publisher)
    : rank_(rank),
      publisher_(publisher),
      teams_(rank),
      entries_(rank.show(rank.entries.step())),
      moving_(rank.rounds.size()) {
  num_fields_ = rank.facts->gather_fields();
  CANZONA_CHECK(num_fields_ <= static_cast<int>(kMostFields), "fields ",
                num_fields_);
  for (size_t k = 0; k < rank.kept.matrices.size(); ++k)
    add_pieces(rank, k,
               kept_.emplace_back(*entry_of(static_cast<int32_t>(k)).rule,
                                  rank.kept.matrices[k].dims));
  for (size_t r = 0; r < rank.rounds.size(); ++r) {
    const Round& round = rank.rounds[r];
    std::vector<Members>& batches = batches_.emplace_back();
    for (const UpdateBatch& planned : rank.updates.batches[r]) {
      Members& batch = batches.emplace_back();
      batch.planned = &planned;
      // Updates are computed in the order of kept matrices and their blocks.
      for (size_t i = 0; i < planned.members.size(); ++i)
        batch.matrices.push_back(&*std::ranges::lower_bound(
            round.computed, std::pair(planned.members[i], planned.blocks[i]),
            {}, [](const SlotMatrix& computed) {
              return std::pair(computed.kept, computed.block);
            }));
      for (const KeptState& state : planned.owned)
        batch.owned.push_back(run_of(rank.store.states() + state.first));
    }
  }
}

std::span<std::byte> ExchangedUpdate::whole_area(size_t round) const {
  auto* slot = reinterpret_cast<std::byte*>(moving_[round].slot);
  return {slot, index(rank_.rounds[round].shards_at * kBytesPerFp32)};
}

std::span<std::byte> ExchangedUpdate::shard_area(size_t round) const {
  const Round& r = rank_.rounds[round];
  auto* slot = reinterpret_cast<std::byte*>(moving_[round].slot);
  return {slot + r.shards_at * kBytesPerFp32,
          index((r.num_elements - r.shards_at) * kBytesPerFp32)};
}

const RuleSet::Entry& ExchangedUpdate::entry_of(int32_t kept) const {
  return rank_.rules.of(rank_.tensor_of(rank_.kept.matrices[index(kept)]));
}

void ExchangedUpdate::begin(int64_t step, double learning_rate) {
  step_ = step;
  learning_rate_ = learning_rate;
  next_ = 0;
  teams_.begin(step);
  while (entries_[next_].entry->kind != EntryKind::kUpdateElements)
    carry_out(entries_[next_++]);
}

void ExchangedUpdate::finish() {
  while (++next_ < entries_.size()) carry_out(entries_[next_]);
}

// A stage waits for what it needs; a round has its slot from `prepare` on.
void ExchangedUpdate::carry_out(const ShownEntry& shown) {
  const ScheduleEntry& e = *shown.entry;
  if (is_of_team(e.purpose)) return teams_.exchange(shown, waits_at_once());
  if (e.kind == EntryKind::kAllToAll) return exchange(shown);
  if (e.shared >= 0) return share(shown);
  const size_t round = index(e.round);
  Moving& moving = moving_[round];
  if (e.kind == EntryKind::kPrepare) {
    moving.slot = rank_.store.slot(e.slot.slot);
    return compute(shown, [&] { prepare(round); });
  }
  if (e.kind == EntryKind::kTransform) {
    wait(moving.gather);
    return compute(shown, [&] { transform(round, e.segment); });
  }
  wait(moving.scatter);
  compute(shown, [&] { apply(round); });
  for (int32_t k : rank_.rounds[round].members) publisher_.updated(index(k));
}

void ExchangedUpdate::wait(Works& works) {
  for (Work& work : works) wait_in_step(rank_, work);
}

template <class Stage>
void ExchangedUpdate::compute(const ShownEntry& shown, const Stage& stage) {
  const Span span(rank_.track, shown.span);
  rank_.engines.repeated(stage);
}

void ExchangedUpdate::share(const ShownEntry& shown) {
  const ScheduleEntry& e = *shown.entry;
  const size_t round = index(e.round), shared = index(e.shared);
  float* slot = moving_[round].slot;
  if (e.kind == EntryKind::kLoadStrips) wait(moving_[round].gather);
  teams_.await(e);
  switch (e.kind) {
    case EntryKind::kLoadStrips:
      return compute(shown, [&] { teams_.load(round, shared, slot); });
    case EntryKind::kScaleStrips:
      return compute(shown, [&] { teams_.scale(round, shared); });
    case EntryKind::kSumStrips:
      return compute(shown, [&] { teams_.sum(round, shared, e.segment); });
    case EntryKind::kRoundSum:
      return compute(shown,
                     [&] { teams_.round_sum(round, shared, e.segment); });
    case EntryKind::kIterate:
      return compute(shown, [&] { teams_.iterate(round, shared, e.segment); });
    case EntryKind::kMultiplyStrips:
      return compute(shown,
                     [&] { teams_.multiply(round, shared, e.segment, slot); });
    default:
      CANZONA_CHECK(false, "no stage of a team");
  }
}

void ExchangedUpdate::prepare(size_t round) {
  float* slot = moving_[round].slot;
  for (const SlotPiece& piece : rank_.rounds[round].pieces) {
    if (!piece.parts.empty()) {
      prepare_parts(round, piece);
      continue;
    }
    const RuleSet::Entry& entry = entry_of(piece.kept);
    Run fields[kMostFields];
    for (int f = 0; f < num_fields_; ++f)
      fields[f] = run_of(slot + piece.at + f * piece.field_stride);
    entry.rule->prepare(rank_.engine, now(entry), shard_of(piece),
                        {fields, index(num_fields_)});
  }
}

// Prepares at once a piece that is sent to several owners or members of a team.
void ExchangedUpdate::prepare_parts(size_t round, const SlotPiece& piece) {
  Arena& arena = rank_.engine.arena();
  const Arena::Scope scope(arena);
  const RuleSet::Entry& entry = entry_of(piece.kept);
  Run fields[kMostFields];
  for (int f = 0; f < num_fields_; ++f)
    fields[f] = run_of(arena.take_array<float>(piece.elements()));
  entry.rule->prepare(rank_.engine, now(entry), shard_of(piece),
                      {fields, index(num_fields_)});
  for (int f = 0; f < num_fields_; ++f)
    for (const SlotRectangle& part : piece.parts)
      rank_.engine.copy(in_slot(moving_[round].slot, part, f),
                        in_piece(fields[f], part, piece));
}

void ExchangedUpdate::apply_parts(size_t round, const SlotPiece& piece) {
  Arena& arena = rank_.engine.arena();
  const Arena::Scope scope(arena);
  const RuleSet::Entry& entry = entry_of(piece.kept);
  const Run update = run_of(arena.take_array<float>(piece.elements()));
  for (const SlotRectangle& part : piece.parts)
    rank_.engine.copy(in_piece(update, part, piece),
                      in_slot(moving_[round].slot, part, 0));
  entry.rule->apply(rank_.engine, now(entry), shard_of(piece), update);
}

void ExchangedUpdate::exchange(const ShownEntry& shown) {
  const ScheduleEntry& e = *shown.entry;
  const size_t round = index(e.round);
  const bool gathers = e.purpose == Purpose::kGatherMatrices;
  Courier& courier = gathers ? rank_.groups.gather() : rank_.groups.scatter();
  const auto body = [this, &shown, &courier, gathers, round](
                        Communicator& group, const Call& call) {
    const ScheduleEntry& moved = *shown.entry;
    const ExchangeTable& table =
        rank_.rounds[round].tables(moved.purpose)[index(moved.table)];
    const auto whole = whole_area(round), shards = shard_area(round);
    const Span span(courier.track(), shown.span);
    group.all_to_all_v(
        {gathers ? shards : whole, moved.counts, table.send_offsets},
        {gathers ? whole : shards, table.receive_bytes, table.receive_offsets},
        call);
  };
  rank_.settle(courier);
  Moving& moving = moving_[round];
  Works& works = gathers ? moving.gather : moving.scatter;
  works[index(e.table)] = courier.run({}, body, shown.call());
  if (waits_at_once()) wait(works);
}

void ExchangedUpdate::transform(size_t round, int32_t segment) {
  for (const Members& batch : batches_[round])
    if (batch.planned->segment == segment) transform_batch(round, batch);
}

// Matrices are assembled outside the slot, where their alignment is the same on
// every rank; their updates are written back to where the fields came from.
void ExchangedUpdate::transform_batch(size_t round, const Members& batch) {
  Arena& arena = rank_.engine.arena();
  const Arena::Scope scope(arena);
  const Dims& dims = batch.planned->dims;
  const int64_t each = num_elements(dims);
  const auto count = static_cast<int64_t>(batch.matrices.size());
  float* slot = moving_[round].slot;
  ConstRun fields[kMostFields];
  for (int f = 0; f < num_fields_; ++f) {
    const Run field = run_of(arena.take_array<float>(count * each));
    for (int64_t i = 0; i < count; ++i)
      for (const SlotRectangle& r : batch.matrices[index(i)]->rectangles)
        rank_.engine.copy(in_matrix(advanced(field, i * each), r, dims),
                          in_slot(slot, r, f));
    fields[f] = field;
  }
  const Run update = run_of(arena.take_array<float>(count * each));
  const RuleSet::Entry& entry = rank_.rules.entry(batch.planned->rule);
  entry.rule->transform(rank_.engine, now(entry),
                        {.dims = dims,
                         .count = count,
                         .fields = {fields, index(num_fields_)},
                         .out = update,
                         .states = batch.owned,
                         .phase = batch.planned->phase});
  for (int64_t i = 0; i < count; ++i)
    for (const SlotRectangle& r : batch.matrices[index(i)]->updates)
      rank_.engine.copy(in_slot(slot, r, 0),
                        in_matrix(advanced(update, i * each), r, dims));
}

void ExchangedUpdate::apply(size_t round) {
  float* slot = moving_[round].slot;
  for (const SlotPiece& piece : rank_.rounds[round].pieces) {
    if (!piece.parts.empty()) {
      apply_parts(round, piece);
      continue;
    }
    const RuleSet::Entry& entry = entry_of(piece.kept);
    entry.rule->apply(rank_.engine, now(entry), shard_of(piece),
                      const_run(slot + piece.at));
  }
}

}  // namespace canzona

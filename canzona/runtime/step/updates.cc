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
    for (int32_t k : batch.planned.members) {
      scale_rows(rank_, rank_.kept.matrices[index(k)]);
      publisher_.updated(index(k));
    }
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
  for (const KeptElements& elements : rank_.kept.elements)
    scale_rows(rank_, elements);
  publisher_.updated_elements();
}

Run OwnMatrices::gradient(int32_t, const Piece& piece, int64_t at) const {
  return run_of(rank_.store.gradients() + piece.gradient + at);
}

Shard OwnMatrices::shard(int32_t kept, const Piece& piece, int64_t at,
                         int64_t count, Run* states) const {
  const KeptMatrix& of = matrix(kept);
  size_t filled = 0;
  for (const KeptState& state : rank_.updates.with_shard[index(kept)])
    states[filled++] = run_of(rank_.store.states() + state.first + piece.kept -
                              of.kept.first + at);
  return {.whole = of.dims,
          .count = count,
          .weights = run_of(rank_.store.weights(piece) + at),
          .states = {states, filled},
          .rounded = rank_.store.rounded_copy(piece.parameter + at)};
}

ExchangedUpdate::ExchangedUpdate(Rank& rank, Publisher& publisher)
    : rank_(rank),
      publisher_(publisher),
      stored_(rank),
      stages_(stored_, rank.engines),
      teams_(rank),
      entries_(rank.show(rank.entries.step())),
      moving_(rank.rounds.size()) {
  for (size_t r = 0; r < rank.rounds.size(); ++r)
    batches_.push_back(
        matrix_batches(rank.updates.batches[r], rank.rounds[r].computed));
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

void ExchangedUpdate::begin(int64_t step, double learning_rate) {
  stored_.begin(step, learning_rate);
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
  for (int32_t k : rank_.rounds[round].members) {
    scale_rows(rank_, rank_.kept.matrices[index(k)]);
    publisher_.updated(index(k));
  }
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
  Moving& moving = moving_[index(e.round)];
  if (e.kind == EntryKind::kLoadStrips) wait(moving.gather);
  teams_.await(e);
  compute(shown, [&] { teams_.run(e, moving.slot); });
}

void ExchangedUpdate::prepare(size_t round) {
  for (const SlotPiece& piece : rank_.rounds[round].pieces)
    stages_.prepare(rank_.engine, piece, slot_of(round));
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
  for (const MatrixBatch& batch : batches_[round])
    if (batch.planned->segment == segment)
      stages_.transform(rank_.engine, batch, slot_of(round));
}

void ExchangedUpdate::apply(size_t round) {
  for (const SlotPiece& piece : rank_.rounds[round].pieces)
    stages_.apply(rank_.engine, piece, slot_of(round));
}

}  // namespace canzona

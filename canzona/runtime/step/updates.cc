#include "canzona/runtime/step/updates.h"

#include <algorithm>
#include <functional>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"

namespace canzona::runtime {
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
    const StoredWeights weights = rank.store.weights(elements);
    batch.add({.whole = batch.dims(),
               .count = elements.in_shard.count,
               .grad = const_run(rank.store.gradients() + elements.gradient),
               .weights = weights.exact,
               .states = moments,
               .rounded = weights.rounded,
               .remainder = weights.remainder});
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
  const StoredWeights weights = rank_.store.weights(piece, at);
  return {.whole = of.dims,
          .count = count,
          .weights = weights.exact,
          .states = {states, filled},
          .rounded = weights.rounded,
          .remainder = weights.remainder};
}

ExchangedUpdate::ExchangedUpdate(Rank& rank, Publisher& publisher)
    : rank_(rank),
      publisher_(publisher),
      stored_(rank),
      stages_(stored_, rank.engines, rank.rounds, rank.updates, false),
      entries_(rank.show(rank.entries.step())),
      works_(entries_.size()) {
  stages_.make_teams();
}

// The rooms of teams are still in use until their last exchange has ended.
void ExchangedUpdate::begin(int64_t step, double learning_rate) {
  stored_.begin(step, learning_rate);
  wait(last_in_rooms_);
  std::ranges::fill(works_, std::nullopt);
  next_ = 0;
  while (entries_[next_].entry->kind != EntryKind::kUpdateElements)
    carry_out(next_++);
}

void ExchangedUpdate::finish() {
  while (++next_ < entries_.size()) carry_out(next_);
}

// Exchanges wait for nothing, because couriers carry them out in order. The
// norms of strips that are scaled already are not needed again.
void ExchangedUpdate::carry_out(size_t entry) {
  const ShownEntry& shown = entries_[entry];
  const ScheduleEntry& e = *shown.entry;
  if (!e.is_compute()) return exchange(entry);
  if (e.kind != EntryKind::kSumStrips || !stages_.is_scaled(e))
    for (const int32_t before : e.after) wait(works_[index(before)]);
  {
    const Span span(rank_.track, shown.span);
    stages_.run(e);
  }
  if (e.kind != EntryKind::kApply) return;
  for (int32_t k : rank_.rounds[index(e.round)].members) {
    scale_rows(rank_, rank_.kept.matrices[index(k)]);
    publisher_.updated(index(k));
  }
}

void ExchangedUpdate::exchange(size_t entry) {
  const ShownEntry& shown = entries_[entry];
  const ScheduleEntry& e = *shown.entry;
  const bool of_team = is_of_team(e.purpose);
  if (of_team && !stages_.needs(e, stored_.step())) return;
  const bool gathers = e.purpose == Purpose::kGatherMatrices;
  Courier& courier = of_team   ? rank_.groups.teams()
                     : gathers ? rank_.groups.gather()
                               : rank_.groups.scatter();
  std::byte* memory =
      of_team ? stored_.rooms() : stored_.slot(index(e.round)).data;
  const auto body = [&shown, &courier, memory](Communicator& group,
                                               const Call& call) {
    const ExchangeTable& table = shown.entry->exchange;
    const auto area = [&](const Extent& extent) {
      return std::span(memory + extent.first, index(extent.count));
    };
    const Span span(courier.track(), shown.span);
    group.all_to_all_v(
        {area(table.source), table.send_bytes, table.send_offsets},
        {area(table.target), table.receive_bytes, table.receive_offsets}, call);
  };
  rank_.settle(courier);
  works_[entry] = courier.run({}, body, shown.call());
  if (of_team) last_in_rooms_ = works_[entry];
  if (waits_at_once()) wait(works_[entry]);
}

void ExchangedUpdate::wait(std::optional<Work>& work) {
  if (work) wait_in_step(rank_, *work);
}

}  // namespace canzona::runtime

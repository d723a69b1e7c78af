#include "canzona/runtime/step/exchanged_update.h"

#include <algorithm>
#include <functional>

#include "canzona/base/check.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

constexpr size_t kSlots = kExchangeSlots;
// Beside the round that is transformed, and the one that is scattered.
constexpr size_t kGathersAhead = kSlots - 2;

// A rectangle of a matrix, and the same one packed in a slot.
Matrices in_matrix(Run matrix, const SlotRectangle& r, const Dims& dims) {
  Matrices view =
      as_matrices(advanced(matrix, r.first_row * dims[1] + r.first_col),
                  r.num_rows, r.num_cols);
  view.row_stride = dims[1];
  return view;
}
Matrices in_slot(float* slot, const SlotRectangle& r, int64_t field) {
  return matrices(slot + r.at + field * r.field_stride, r.num_rows, r.num_cols);
}

}  // namespace

ExchangedUpdate::ExchangedUpdate(Rank& rank, Publisher& publisher)
    : rank_(rank), publisher_(publisher), moving_(rank.rounds.size()) {
  num_fields_ =
      make_rule_facts(rank.part.rule, rank.part.rule_options)->gather_fields();
  CANZONA_CHECK(num_fields_ <= static_cast<int>(kMostFields), "fields ",
                num_fields_);
  for (size_t k = 0; k < rank.kept.matrices.size(); ++k)
    add_pieces(rank, k,
               kept_.emplace_back(*entry_of(static_cast<int32_t>(k)).rule,
                                  rank.kept.matrices[k].dims));
  for (size_t r = 0; r < rank.rounds.size(); ++r) {
    const Round& round = rank.rounds[r];
    moving_[r].label = rank.label(cat("micro-group ", r));
    std::vector<Members>& batches = batches_.emplace_back();
    for (const UpdateBatch& planned : rank.updates.batches[r]) {
      Members& batch = batches.emplace_back();
      batch.planned = &planned;
      // What is computed comes in the order of kept matrices.
      for (int32_t k : planned.members)
        batch.matrices.push_back(&*std::ranges::lower_bound(
            round.computed, k, {}, &SlotMatrix::kept));
      for (const StatePlace& place : planned.owned)
        batch.owned.push_back(run_of(rank.store.states() + place.first));
    }
  }
}

std::span<std::byte> ExchangedUpdate::whole_area(size_t round) const {
  auto* slot = reinterpret_cast<std::byte*>(
      rank_.store.slot(static_cast<int64_t>(round)));
  return {slot, index(rank_.rounds[round].shards_at * kBytesPerFp32)};
}

std::span<std::byte> ExchangedUpdate::shard_area(size_t round) const {
  const Round& r = rank_.rounds[round];
  auto* slot = reinterpret_cast<std::byte*>(
      rank_.store.slot(static_cast<int64_t>(round)));
  return {slot + r.shards_at * kBytesPerFp32,
          index((r.num_elements - r.shards_at) * kBytesPerFp32)};
}

const RuleSet::Entry& ExchangedUpdate::entry_of(int32_t kept) const {
  return rank_.rules.of(rank_.tensor_of(rank_.kept.matrices[index(kept)]));
}

void ExchangedUpdate::begin(int64_t step, double learning_rate) {
  step_ = step;
  learning_rate_ = learning_rate;
  num_sent_ = num_applied_ = 0;
  send_until(0);
}

void ExchangedUpdate::finish() {
  const size_t rounds = rank_.rounds.size();
  for (size_t k = 0; k < rounds; ++k) {
    send_until(k + kGathersAhead);
    wait(moving_[k].gather);
    compute("transform", &ExchangedUpdate::transform, k);
    post_scatter(k);
  }
  apply_until(rounds);
}

void ExchangedUpdate::send_until(size_t last) {
  for (; num_sent_ < rank_.rounds.size() && num_sent_ <= last; ++num_sent_) {
    if (num_sent_ >= kSlots) apply_until(num_sent_ - kSlots + 1);
    compute("prepare", &ExchangedUpdate::prepare, num_sent_);
    post_gather(num_sent_);
  }
}

void ExchangedUpdate::apply_until(size_t end) {
  for (; num_applied_ < end; ++num_applied_) {
    wait(moving_[num_applied_].scatter);
    compute("apply", &ExchangedUpdate::apply, num_applied_);
    for (int32_t k : rank_.rounds[num_applied_].members)
      publisher_.updated(index(k));
  }
}

void ExchangedUpdate::wait(Works& works) {
  for (Work& work : works) {
    if (work.done()) {
      work.wait();  // may have failed
      continue;
    }
    const WaitWatch watch(rank_, rank_.times.waited_in_step);
    const Span span(rank_.track, "wait");
    work.wait();
  }
}

void ExchangedUpdate::compute(const char* name,
                              void (ExchangedUpdate::*stage)(size_t),
                              size_t round) {
  const Span span(rank_.track, name, moving_[round].label);
  const auto work = [&] { (this->*stage)(round); };
  rank_.engine.repeat(std::cref(work));
}

void ExchangedUpdate::prepare(size_t round) {
  float* slot = rank_.store.slot(static_cast<int64_t>(round));
  for (const SlotPiece& piece : rank_.rounds[round].pieces) {
    const RuleSet::Entry& entry = entry_of(piece.kept);
    Run fields[kMostFields];
    for (int f = 0; f < num_fields_; ++f)
      fields[f] = run_of(slot + piece.at + f * piece.field_stride);
    entry.rule->prepare(rank_.engine, now(entry), shard_of(piece),
                        {fields, index(num_fields_)});
  }
}

ExchangedUpdate::Works ExchangedUpdate::exchange(
    Courier& courier, const std::array<const ExchangeTable*, 2>& tables,
    std::span<std::byte> from, std::span<std::byte> to,
    std::string_view label) {
  const bool at_once =
      !rank_.options.pipelined || rank_.options.overlap == Overlap::kNone;
  rank_.settle();
  Works works;
  for (size_t i = 0; i < works.size(); ++i) {
    const ExchangeTable& table = *tables[i];
    if (table.empty) continue;
    works[i] = courier.all_to_all_v(
        {from, table.send_bytes, table.send_offsets},
        {to, table.receive_bytes, table.receive_offsets}, {.label = label});
    if (at_once) wait(works);
  }
  return works;
}

void ExchangedUpdate::post_gather(size_t round) {
  const Round& r = rank_.rounds[round];
  moving_[round].gather =
      exchange(rank_.groups.gather(), {&r.gather, &r.gather_uncut},
               shard_area(round), whole_area(round), moving_[round].label);
}

void ExchangedUpdate::post_scatter(size_t round) {
  const Round& r = rank_.rounds[round];
  moving_[round].scatter =
      exchange(rank_.groups.scatter(), {&r.scatter, &r.scatter_uncut},
               whole_area(round), shard_area(round), moving_[round].label);
}

void ExchangedUpdate::transform(size_t round) {
  for (const Members& batch : batches_[round]) transform_batch(round, batch);
}

// Matrices are put together outside the slot, where they are aligned alike on
// every rank, and their updates go back to where the fields came from.
void ExchangedUpdate::transform_batch(size_t round, const Members& batch) {
  Arena& arena = rank_.engine.arena();
  const Arena::Scope scope(arena);
  const Dims& dims = batch.planned->dims;
  const int64_t each = num_elements(dims);
  const auto count = static_cast<int64_t>(batch.matrices.size());
  float* slot = rank_.store.slot(static_cast<int64_t>(round));
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
  float* slot = rank_.store.slot(static_cast<int64_t>(round));
  for (const SlotPiece& piece : rank_.rounds[round].pieces) {
    const RuleSet::Entry& entry = entry_of(piece.kept);
    entry.rule->apply(rank_.engine, now(entry), shard_of(piece),
                      const_run(slot + piece.at));
  }
}

}  // namespace canzona

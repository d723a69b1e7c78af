#include "canzona/runtime/step/local_update.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

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
    rank_.update([&] {
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
    rank_.update([&] {
      batch.step(rank_.engine, {step, rate * entry.learning_rate_factor});
    });
  }
  publisher_.updated_elements();
}

}  // namespace canzona

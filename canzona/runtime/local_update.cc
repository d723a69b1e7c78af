#include "canzona/runtime/local_update.h"

#include "canzona/base/text.h"
#include "canzona/base/index.h"

namespace canzona {

LocalUpdate::Batch::Batch(Rank& rank, const UpdateBatch& of)
    : planned(of),
      entry(rank.rules.entry(of.rule)),
      tensors(*entry.rule, of.dims, of.phase),
      label(rank.label(cat(of.members.size(), " x ", to_string(of.dims)))) {
  // A matrix may lie in pieces, such as the q of an interleaved qkv.
  for (int32_t k : of.members) add_pieces(rank, index(k), tensors);
  for (const StatePlace& place : of.owned)
    tensors.add_owned(run_of(rank.store.states() + place.first));
}

LocalUpdate::LocalUpdate(Rank& rank, Publisher& publisher)
    : rank_(rank), publisher_(publisher) {
  for (const UpdateBatch& planned : rank.updates.batches.at(0))
    batches_.emplace_back(rank, planned);
}

void LocalUpdate::run(int64_t step, double learning_rate) {
  for (const Batch& batch : batches_) {
    const Span span(rank_.track, "update", batch.label);
    batch.tensors.step(
        rank_.engine, {step, learning_rate * batch.entry.learning_rate_factor});
    for (int32_t k : batch.planned.members) publisher_.updated(index(k));
  }
}

}  // namespace canzona

#include "canzona/runtime/local_update.h"

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/rules/runs.h"
#include "canzona/runtime/index.h"

namespace canzona {
LocalUpdate::LocalUpdate(Rank& rank, Publisher& publisher)
    : rank_(rank), publisher_(publisher) {
  for (size_t k = 0; k < rank.kept.matrices.size(); ++k)
    shards_.emplace_back(rank, k);
  for (const UpdateBatch& planned : rank.updates.batches.at(0)) add(planned);
}

void LocalUpdate::add(const UpdateBatch& planned) {
  Batch batch;
  batch.planned = &planned;
  batch.label =
      rank_.label(cat(planned.members.size(), " x ", to_string(planned.dims)));
  for (int32_t k : planned.members) {
    batch.whole = batch.whole && rank_.kept.matrices[index(k)].whole();
    for (const Shard& shard : shards_[index(k)].shards)
      batch.shards.push_back(shard);
  }
  for (const StatePlace& place : planned.owned)
    batch.owned.push_back(run_of(rank_.store.states() + place.first));
  batches_.push_back(std::move(batch));
}

void LocalUpdate::run(int64_t step, double learning_rate) {
  for (const Batch& batch : batches_) {
    const Span span(rank_.track, "update", batch.label);
    const RuleSet::Entry& entry = rank_.rules.entry(batch.planned->rule);
    const Step now{step, learning_rate * entry.learning_rate_factor};
    if (batch.whole)
      entry.rule->step_whole(rank_.engine, now,
                             {.dims = batch.planned->dims,
                              .shards = batch.shards,
                              .owned = batch.owned,
                              .phase = batch.planned->phase});
    else
      update_pieces(now, batch, *entry.rule);
    for (int32_t k : batch.planned->members) publisher_.updated(index(k));
  }
}

void LocalUpdate::update_pieces(const Step& step, const Batch& batch,
                                const Rule& rule) {
  Arena& arena = rank_.engine.arena();
  const Arena::Scope scope(arena);
  const auto count = static_cast<int64_t>(batch.planned->members.size());
  const int64_t each = num_elements(batch.planned->dims);
  const auto take = [&] {
    return run_of(arena.take_array<float>(count * each));
  };
  const auto num_fields = index(rule.facts().gather_fields());
  CANZONA_CHECK(num_fields <= kMostFields, "fields ", num_fields);
  Run fields[kMostFields];
  ConstRun gathered[kMostFields];
  for (size_t f = 0; f < num_fields; ++f) gathered[f] = fields[f] = take();
  int64_t done = 0;
  for (const Shard& shard : batch.shards) {
    Run parts[kMostFields];
    for (size_t f = 0; f < num_fields; ++f)
      parts[f] = advanced(fields[f], done);
    rule.prepare(rank_.engine, step, shard, {parts, num_fields});
    done += shard.count;
  }
  const Run update = take();
  rule.transform(rank_.engine, step,
                 {.dims = batch.planned->dims,
                  .count = count,
                  .fields = {gathered, num_fields},
                  .out = update,
                  .states = batch.owned,
                  .phase = batch.planned->phase});
  done = 0;
  for (const Shard& shard : batch.shards) {
    rule.apply(rank_.engine, step, shard, advanced(update, done));
    done += shard.count;
  }
}

}  // namespace canzona

#include "canzona/rules/tensor_batch.h"

#include <algorithm>
#include <functional>

#include "canzona/rules/runs.h"

namespace canzona {

void fill_initially(Engine& engine, const StateFact& fact, Run run,
                    int64_t tensors) {
  const int64_t elements = tensors * fact.elements();
  engine.set_zero(run.data, elements * size_of(run.dtype));
  if (fact.initially == Initially::kZero || elements == 0) return;
  const int64_t d = fact.shape.back();
  const int64_t most = engine.batch_width();
  const int64_t squares = elements / (d * d);
  for (int64_t i = 0; i < squares; i += most)
    engine.set_identity(as_matrices(advanced(run, i * d * d), d, d,
                                    std::min(most, squares - i)),
                        1.0);
}

std::vector<TensorStates> make_states(Engine& engine, const Rule& rule,
                                      const Dims& dims, size_t tensors,
                                      Arena& arena) {
  const auto count = static_cast<int64_t>(tensors);
  std::vector<TensorStates> all(tensors);
  for (const StateFact& fact : rule.facts().tensor_states(dims)) {
    const DType dtype = rule.dtype();
    Run run{arena.take(count * fact.elements() * size_of(dtype)), dtype};
    fill_initially(engine, fact, run, count);
    for (TensorStates& one : all) {
      one.facts.push_back(fact);
      one.runs.push_back(run);
      (fact.lives == Lives::kWithShard ? one.with_shard : one.with_owner)
          .push_back(run);
      run = advanced(run, fact.elements());
    }
  }
  return all;
}

void TensorBatch::add(const Shard& shard) {
  const Run* before = states_.data();
  states_.insert(states_.end(), shard.states.begin(), shard.states.end());
  shards_.push_back({.whole = dims_,
                     .count = shard.count,
                     .grad = shard.grad,
                     .weights = shard.weights,
                     .states = std::span(states_).last(shard.states.size()),
                     .rounded = shard.rounded});
  if (states_.data() == before) return;
  const Run* next = states_.data();
  for (Shard& moved : shards_) {
    moved.states = {next, moved.states.size()};
    next += moved.states.size();
  }
}

void TensorBatch::step(Engine& engine, const Step& step) const {
  const auto work = [&] { issue(engine, step); };
  engine.repeat(std::cref(work));
}

}  // namespace canzona

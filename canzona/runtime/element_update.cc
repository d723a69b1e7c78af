#include "canzona/runtime/element_update.h"

namespace canzona {

ElementUpdate::ElementUpdate(Rank& rank, Publisher& publisher)
    : rank_(rank), publisher_(publisher) {
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
  const Span span(rank_.track, "update elements");
  for (const auto& [rule, batch] : batches_) {
    const RuleSet::Entry& entry = rank_.rules.entry(rule);
    const double rate = entry.of_matrices ? rates.matrices : rates.others;
    batch.step(rank_.engine, {step, rate * entry.learning_rate_factor});
  }
  publisher_.updated_elements();
}

}  // namespace canzona

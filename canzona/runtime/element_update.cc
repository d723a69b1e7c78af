#include "canzona/runtime/element_update.h"

namespace canzona {

ElementUpdate::ElementUpdate(Rank& rank, Publisher& publisher)
    : rank_(rank), publisher_(publisher) {
  float* states = rank.store.states();
  for (const KeptElements& elements : rank.kept.elements) {
    Group& group = group_of(rank.rules.number_of(elements.tensor));
    group.states.push_back(
        {run_of(states + rank.updates.exp_avg + elements.kept),
         run_of(states + rank.updates.exp_avg_sq + elements.kept)});
    group.shards.push_back(
        {.whole = group.dims,
         .count = elements.count,
         .grad = const_run(rank.store.gradients() + elements.gradient),
         .weights = run_of(rank.store.weights(elements)),
         .states = group.states.back(),
         .rounded = rank.store.rounded_copy(elements.first)});
  }
}

ElementUpdate::Group& ElementUpdate::group_of(int32_t rule) {
  for (Group& group : groups_)
    if (group.rule == rule) return group;
  Group& group = groups_.emplace_back();
  group.rule = rule;
  group.dims = {1};
  return group;
}

void ElementUpdate::run(int64_t step, const ElementRates& rates) {
  const Span span(rank_.track, "update elements");
  for (const Group& group : groups_) {
    const RuleSet::Entry& entry = rank_.rules.entry(group.rule);
    const double rate = entry.of_matrices ? rates.matrices : rates.others;
    entry.rule->step_whole(rank_.engine,
                           {step, rate * entry.learning_rate_factor},
                           {.dims = group.dims, .shards = group.shards});
  }
  publisher_.updated_elements();
}

}  // namespace canzona

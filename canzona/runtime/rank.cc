#include "canzona/runtime/rank.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/names.h"

namespace canzona {
namespace {

std::unique_ptr<RuleFacts> facts_of(const PlanPart& plan) {
  return make_rule_facts(plan.rule, plan.rule_options);
}

// Slots are alike on all ranks of a stage, as the plan predicts them.
int64_t slot_elements(const PlanPart& plan, int32_t stage) {
  return exchange_slot_bytes(plan,
                             *facts_of(plan))[static_cast<size_t>(stage)] /
         kBytesPerFp32;
}

// Enough for every bucket's operations of one direction, so that nobody waits
// for a place in the queue.
int queue_capacity(const PlanPart& plan) {
  size_t most = plan.model.tensors.size();
  return static_cast<int>(
      std::min<size_t>(2 * plan.buckets.size() + most, 4096));
}

}  // namespace

Rank::Rank(const PlanPart& the_plan, Communicator& world, Engine& the_engine,
           const RuntimeOptions& the_options, const RankSeat& seat)
    : plan(the_plan),
      options(the_options),
      engine(the_engine),
      world_rank(world.rank()),
      known_as(plan.rank_in_whole(world_rank)),
      prefix(seat.prefix),
      place(coordinates_of(plan.grid, plan.grid_rank(world_rank))),
      layout(lay_out_rank(plan, place)),
      modules(plan, place, layout.parameters),
      kept(kept_by(plan, place, layout)),
      rules(plan, {options.adamw, options.groups}, engine.kind()),
      rounds(make_rounds(plan, place, kept, facts_of(plan)->gather_fields())),
      updates(plan_updates(plan, layout, kept, rounds, rules.facts(),
                           engine.batch_width())),
      store(plan, layout, kept, updates, slot_elements(plan, place.stage),
            pool_sizes(plan, place.stage), engine),
      track(seat.track),
      groups(
          world, plan, wire_ops(), queue_capacity(plan),
          [this](const std::string& name) { return add_track(name); }, prefix) {
  for (int32_t m = 0; m < num_modules(plan.model); ++m)
    module_labels.push_back(label(module_name(plan.model, m)));
}

std::string_view Rank::label(const std::string& text) {
  if (options.trace != nullptr) return options.trace->keep(text);
  return labels.emplace_back(text);
}

WaitWatch::WaitWatch(Rank& rank, double& seconds)
    : rank_(rank),
      watch_(seconds),
      links_(rank.groups.links_busy()),
      exchange_(rank.groups.exchange_busy()) {}

WaitWatch::~WaitWatch() {
  if (!rank_.groups.has_links()) return;
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  RuntimeTimes& times = rank_.times;
  times.links_exposed += seconds(rank_.groups.links_busy() - links_);
  times.exchange_exposed += seconds(rank_.groups.exchange_busy() - exchange_);
}

void add_pieces(const Rank& rank, size_t kept, TensorBatch& batch) {
  const KeptMatrix& matrix = rank.kept.matrices[kept];
  for (const Piece& piece : matrix.pieces) {
    std::vector<Run> states;
    for (const StatePlace& place : rank.updates.with_shard[kept])
      states.push_back(run_of(rank.store.states() + place.first + piece.kept -
                              matrix.kept.first));
    batch.add({.whole = matrix.dims,
               .count = piece.elements(),
               .grad = const_run(rank.store.gradients() + piece.gradient),
               .weights = run_of(rank.store.weights(piece)),
               .states = states,
               .rounded = rank.store.rounded_copy(piece.parameter)});
  }
}

}  // namespace canzona

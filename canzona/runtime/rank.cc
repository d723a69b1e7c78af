#include "canzona/runtime/rank.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/names.h"

namespace canzona {
namespace {

std::unique_ptr<RuleFacts> facts_of(const PlanPart& part) {
  return make_rule_facts(part.rule, part.rule_options);
}

// Slots are alike on all ranks of a stage, as the plan predicts them.
int64_t slot_elements(const PlanPart& part, int32_t stage) {
  return exchange_slot_bytes(part,
                             *facts_of(part))[static_cast<size_t>(stage)] /
         kBytesPerFp32;
}

// Enough for a sum and a publication of every bucket, or both exchanges of
// every slot, so that nobody waits for a place in the queue.
int queue_capacity(const PlanPart& part) {
  const size_t most = 2 * std::max<size_t>(part.buckets.size(), kExchangeSlots);
  return static_cast<int>(std::min<size_t>(most, 4096));
}

}  // namespace

Rank::Rank(const PlanPart& the_part, Communicator& world, Engine& the_engine,
           const RuntimeOptions& the_options, const RankSeat& seat)
    : part(the_part),
      options(the_options),
      engine(the_engine),
      world_rank(world.rank()),
      known_as(part.rank_in_whole(world_rank)),
      prefix(seat.prefix),
      place(coordinates_of(part.grid, part.grid_rank(world_rank))),
      layout(lay_out_rank(part, place)),
      modules(part, place, layout.parameters),
      kept(kept_by(part, place, layout)),
      rules(part, {options.adamw, options.groups}, engine.kind()),
      rounds(make_rounds(part, place, kept, facts_of(part)->gather_fields())),
      entries(part, world_rank, layout, kept, rounds),
      updates(plan_updates(part, layout, kept, rounds, rules.facts(),
                           engine.batch_width())),
      store(part, layout, kept, updates, slot_elements(part, place.stage),
            pool_sizes(part, place.stage), engine),
      track(seat.track),
      groups(
          world, part, wire_ops(), queue_capacity(part),
          [this](const std::string& name) { return add_track(name); }, prefix) {
  for (int32_t m = 0; m < num_modules(part.model); ++m)
    module_labels.push_back(label(cat(
        module_name(part.model, m), part.name.empty() ? "" : ", ", part.name)));
}

std::string_view Rank::label(const std::string& text) {
  if (options.trace != nullptr) return options.trace->keep(text);
  return *labels.insert(text).first;
}

// Nobody sees the names of tensors without a trace.
ShownEntry Rank::show(const ScheduleEntry& entry) {
  const bool traced = options.trace != nullptr;
  return {&entry,
          {word_of(entry.kind), label(canzona::label_of(part, entry)),
           traced ? label(names_of(part, kept, entry)) : std::string_view(),
           bytes_of(part, world_rank, entry, bytes_of(options.wire))}};
}

std::vector<ShownEntry> Rank::show(const std::vector<ScheduleEntry>& list) {
  std::vector<ShownEntry> shown;
  shown.reserve(list.size());
  for (const ScheduleEntry& entry : list) shown.push_back(show(entry));
  return shown;
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
  std::vector<Run> states;
  for (const Piece& piece : matrix.pieces) {
    states.clear();
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

#include "canzona/runtime/rank.h"

#include <algorithm>
#include <bit>
#include <exception>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/state_boxes.h"
#include "canzona/runtime/engine_lanes.h"

namespace canzona::runtime {

// Zeroed because padding is sent and must be the same everywhere; nothing else
// is read before it is written.
ReservedBlock::ReservedBlock(Engine& engine, int64_t bytes, Communicator* world)
    : bytes_(bytes) {
  if (bytes == 0) return;
  if (std::byte* quick = world != nullptr ? world->allocate(bytes) : nullptr)
    data_ = {quick, Release{&engine, world}};
  else
    data_ = {engine.memory().allocate(bytes), Release{&engine, nullptr}};
  engine.set_zero(data(), bytes);
}

void ReservedBlock::Release::operator()(std::byte* memory) const {
  if (world == nullptr) return engine->memory().release(memory);
  try {
    engine->synchronize();
  } catch (const std::exception&) {
    return;  // the device is lost, and its memory with it
  }
  world->release(memory);
}

RankStore::RankStore(const PlanPart& part, const RankLayout& layout,
                     const Kept& kept, const UpdatePlan& updates,
                     int64_t slot_elements, int64_t room_bytes,
                     const PoolSizes& pools, Engine& engine,
                     Communicator* world)
    : rounded_(part.options.parameters == DType::kBf16),
      form_(part.options.master),
      master_of_elements_(kept.num_in_matrices),
      slot_elements_(slot_elements),
      pool_sizes_(pools) {
  const int64_t masters = (kept.num_in_matrices + kept.num_elements) *
                          master_bytes_per_element(part.options);
  parameters_ = ReservedBlock(
      engine, layout.parameters.num_elements * parameter_bytes(), world);
  gradients_ = ReservedBlock(
      engine, layout.gradients.num_elements * kBytesPerFp32, world);
  master_ = ReservedBlock(engine, masters);
  states_ = ReservedBlock(engine, updates.num_state_elements * kBytesPerFp32);
  slots_ = ReservedBlock(engine, kExchangeSlots * slot_elements * kBytesPerFp32,
                         world);
  rooms_ = ReservedBlock(engine, room_bytes, world);
  gather_pool_ =
      ReservedBlock(engine, pools.gather_bytes(parameter_bytes()), world);
  scatter_pool_ = ReservedBlock(engine, pools.scatter_bytes(), world);
}

GroupMemory RankStore::group_memory(bool parameters_alike,
                                    bool gradients_alike) const {
  return {.parameters = parameters_.all(),
          .gradients = gradients_.all(),
          .slots = slots_.all(),
          .rooms = rooms_.all(),
          .gather_pool = gather_pool_.all(),
          .scatter_pool = scatter_pool_.all(),
          .parameters_alike = parameters_alike,
          .gradients_alike = gradients_alike};
}

StoredWeights RankStore::weights_at(int64_t parameter, int64_t master) const {
  if (!rounded_) return {run_of(as_floats(parameters_) + parameter)};
  uint16_t* rounded = rounded_copy(parameter);
  if (form_ == MasterForm::kFp32)
    return {run_of(as_floats(master_) + master), rounded};
  return {{}, rounded, reinterpret_cast<uint16_t*>(master_.data()) + master};
}

uint16_t* RankStore::rounded_copy(int64_t element) const {
  return rounded_ ? reinterpret_cast<uint16_t*>(parameters_.data()) + element
                  : nullptr;
}

RankMemory RankStore::memory() const {
  return {Bytes(parameters_.bytes()),
          Bytes(gradients_.bytes()),
          Bytes(master_.bytes()),
          Bytes(states_.bytes()),
          Bytes(slots_.bytes() + rooms_.bytes()),
          Bytes(gather_pool_.bytes() + scatter_pool_.bytes())};
}

namespace {

// Slots have the same size on all ranks of a stage, as the plan predicts.
int64_t slot_elements(const PlanPart& part, const RuleFacts& facts,
                      int32_t stage) {
  return exchange_slot_bytes(part, facts)[index(stage)] / kBytesPerFp32;
}

// Enough for a sum and a publication of every bucket, or both exchanges of
// every slot, so that posting never waits for room in the queue.
int queue_capacity(const PlanPart& part) {
  // A rank may have posted three exchanges for each matrix that teams share.
  size_t num_shared = 0;
  for (size_t m = 0; m < part.matrices.size(); ++m)
    num_shared += part.owners[m].size() > 1 ? 1 : 0;
  const size_t most =
      std::max(2 * std::max<size_t>(part.buckets.size(), kExchangeSlots),
               3 * num_shared);
  return static_cast<int>(std::min<size_t>(most, 4096));
}

std::unique_ptr<Lane> compute_lane(const Communicator& world, Engine& engine,
                                   const RuntimeOptions& options) {
  if (!options.ordered || !world.can_order() || engine.make_lane() == nullptr)
    return nullptr;
  return std::make_unique<ComputeLane>(engine);
}

GroupLanes group_lanes(Engine& engine, bool ordered) {
  if (!ordered) return {};
  return {std::make_shared<EngineLane>(engine.make_lane()),
          std::make_shared<EngineLane>(engine.make_lane())};
}

bool is_timed(const RuntimeOptions& options) {
  return options.timed_waits || options.trace != nullptr;
}

}  // namespace

Rank::Timed::Timed(Rank& rank, bool traced)
    : times(rank.engine,
            [&rank] {
              const Trace* trace = rank.options.trace;
              return trace != nullptr ? trace->now() : steady_nanoseconds();
            }),
      compute(
          times.add([&rank](Event& event) { rank.engine.record_in(event); })),
      gradients(times.add([&rank](Event& event) {
        static_cast<EngineLane&>(*rank.lanes.gradients).record_in(event);
      })),
      parameters(times.add([&rank](Event& event) {
        static_cast<EngineLane&>(*rank.lanes.parameters).record_in(event);
      })) {
  if (!traced) return;
  const auto add = [&](const char* name, LaneClock& clock) {
    return rank.options.trace->add_track(
        rank.known_as, cat(rank.prefix, "GPU stream, ", name), &clock);
  };
  compute_track = add("compute", compute);
  gradients_track = add("gradients", gradients);
  parameters_track = add("parameters", parameters);
}

Rank::Rank(const PlanPart& the_part, Communicator& world, Engine& the_engine,
           const RuntimeOptions& the_options, Track* the_track,
           const std::string& the_prefix)
    : part(the_part),
      options(the_options),
      engine(the_engine),
      engines({&engine}, nullptr),
      engine_ops(engine.memory_ops()),
      world_rank(world.rank()),
      known_as(part.rank_in_whole(world_rank)),
      prefix(the_prefix),
      at(in_grid(part, world_rank)),
      layout(lay_out_rank(part, at)),
      modules(part, at, layout.parameters),
      kept(kept_by(part, at, layout)),
      facts(make_rule_facts(part.rule, part.rule_options)),
      rules(part, *facts, {options.adamw, options.groups}, engine.kind()),
      rounds(make_rounds(part, at, kept, facts->gather_fields())),
      entries(part, world_rank, layout, kept, rounds),
      updates(plan_updates(part, layout, kept, rounds, rules.facts(),
                           engine.batch_width())),
      store(part, layout, kept, updates, slot_elements(part, *facts, at.stage),
            team_room_bytes(part)[index(at.stage)], pool_sizes(part, at.stage),
            engine, options.ordered && world.can_order() ? &world : nullptr),
      compute(compute_lane(world, engine, options)),
      lanes(group_lanes(engine, compute != nullptr)),
      timed(compute != nullptr && is_timed(options)
                ? std::make_unique<Timed>(*this, options.trace != nullptr)
                : nullptr),
      track(timed != nullptr ? timed->compute_track : the_track),
      groups(
          world, part, wire_ops(), lanes, queue_capacity(part),
          [this](const std::string& name, const Lane* lane) {
            return add_track(name, lane);
          },
          prefix),
      edge_(compute != nullptr ? compute->make_mark() : nullptr) {
  if (compute != nullptr)
    groups.register_memory(
        store.group_memory(layout.parameters.whole, layout.gradients.whole));
  for (int32_t m = 0; m < num_modules(part.model); ++m)
    module_labels.push_back(label(cat(
        module_name(part.model, m), part.name.empty() ? "" : ", ", part.name)));
}

void Rank::settle(const Courier& courier) {
  if (compute == nullptr) return settle();
  compute->record(*edge_);
  courier.lane()->wait_for(*edge_);
}

void Rank::drain() noexcept {
  if (compute == nullptr) return;
  for (Lane* lane : {lanes.gradients.get(), lanes.parameters.get()}) try {
      lane->record(*edge_);
      edge_->wait();
    } catch (const std::exception&) {
      return;  // the device is lost; its next user gets the error
    }
  if (timed == nullptr) return;
  try {
    engine.synchronize();
    for (Track* of : {timed->compute_track, timed->gradients_track,
                      timed->parameters_track})
      if (of != nullptr) of->settle();
  } catch (const std::exception&) {
    return;
  }
}

Track* Rank::add_track(const std::string& name, const Lane* lane) const {
  if (options.trace == nullptr) return nullptr;
  if (lane == nullptr) return options.trace->add_track(known_as, prefix + name);
  return lane == lanes.gradients.get() ? timed->gradients_track
                                       : timed->parameters_track;
}

// Waits are in the order of compute's work.
void Rank::add_waits() {
  if (timed == nullptr) return;
  LaneClock& clock = timed->compute;
  for (; !waits_.empty() && clock.is_passed(waits_.front().end);
       waits_.pop_front()) {
    const LaneWait& wait = waits_.front();
    *wait.seconds += 1e-9 * static_cast<double>(clock.time_of(wait.end) -
                                                clock.time_of(wait.begin));
    clock.forget(wait.begin);
    clock.forget(wait.end);
  }
}

std::string_view Rank::label(const std::string& text) {
  if (options.trace != nullptr) return options.trace->keep(text);
  return *labels.insert(text).first;
}

// Names of tensors are shown only in a trace.
ShownEntry Rank::show(const ScheduleEntry& entry) {
  const bool traced = options.trace != nullptr;
  return {&entry,
          {word_of(entry.kind), label(plan::label_of(part, entry)),
           traced ? label(names_of(part, kept, entry)) : std::string_view(),
           bytes_of(part, world_rank, entry, size_of(options.wire))}};
}

std::vector<ShownEntry> Rank::show(const std::vector<ScheduleEntry>& list) {
  std::vector<ShownEntry> shown;
  shown.reserve(list.size());
  for (const ScheduleEntry& entry : list) shown.push_back(show(entry));
  return shown;
}

WaitWatch::OfHost::OfHost(Rank& rank, double& seconds)
    : watch(seconds),
      links(rank.groups.links_busy()),
      exchange(rank.groups.exchange_busy()) {}

void wait_in_step(Rank& rank, Work& work) {
  if (rank.compute == nullptr && work.done()) {
    work.order(nullptr);  // throws if it has failed
    return;
  }
  const WaitWatch watch(rank, rank.times.waited_in_step);
  const Span span(rank.track, "wait");
  work.order(rank.compute.get());
}

WaitWatch::WaitWatch(Rank& rank, double& seconds)
    : rank_(rank), seconds_(seconds) {
  if (rank.compute == nullptr)
    host_.emplace(rank, seconds);
  else if (rank.options.timed_waits)
    begin_ = rank.timed->compute.stamp();
}

WaitWatch::~WaitWatch() {
  if (rank_.compute != nullptr) {
    if (rank_.options.timed_waits)
      rank_.waits_.push_back({begin_, rank_.timed->compute.stamp(), &seconds_});
    return;
  }
  if (!rank_.groups.has_links()) return;
  const auto seconds = [](std::chrono::nanoseconds time) {
    return std::chrono::duration<double>(time).count();
  };
  RuntimeTimes& times = rank_.times;
  times.links_exposed += seconds(rank_.groups.links_busy() - host_->links);
  times.exchange_exposed +=
      seconds(rank_.groups.exchange_busy() - host_->exchange);
}

namespace {

// `stored` are the run `in_shard` of the tensor's tp shard.
void scale_run(Rank& rank, int32_t tensor, const Extent& in_shard,
               const StoredWeights& stored) {
  const auto found = rank.row_factors.find(tensor);
  if (found == rank.row_factors.end()) return;
  const Arena::Scope scope(rank.engine.arena());
  float* const weights = restored(rank.engine, stored, in_shard.count);
  float* next = weights;
  for (const Rectangle& r :
       shard_rectangles(rank.tensor(tensor), rank.part.grid.tp_ranks(),
                        rank.at.tp_rank, in_shard))
    for (int64_t row = r.first_row; row < r.end_row(); ++row) {
      const float factor = found->second[index(row)];
      for (int64_t col = 0; col < r.num_cols; ++col) *next++ *= factor;
    }
  store(rank.engine, stored, weights, in_shard.count);
}

}  // namespace

void scale_rows(Rank& rank, const KeptMatrix& matrix) {
  for (const Piece& piece : matrix.pieces)
    scale_run(rank, rank.tensor_of(matrix), {piece.in_shard, piece.elements()},
              rank.store.weights(piece));
}

void scale_rows(Rank& rank, const KeptElements& elements) {
  scale_run(rank, elements.tensor, elements.in_shard,
            rank.store.weights(elements));
}

void add_pieces(const Rank& rank, size_t kept, TensorBatch& batch) {
  const KeptMatrix& matrix = rank.kept.matrices[kept];
  std::vector<Run> states;
  for (const Piece& piece : matrix.pieces) {
    states.clear();
    for (const KeptState& state : rank.updates.with_shard[kept])
      states.push_back(run_of(rank.store.states() + state.first + piece.kept -
                              matrix.kept.first));
    const StoredWeights weights = rank.store.weights(piece);
    batch.add({.whole = matrix.dims,
               .count = piece.elements(),
               .grad = const_run(rank.store.gradients() + piece.gradient),
               .weights = weights.exact,
               .states = states,
               .rounded = weights.rounded,
               .remainder = weights.remainder});
  }
}

const FlatLayout::Shard& stored_shard(const Rank& rank,
                                      const FlatLayout& layout,
                                      int32_t tensor) {
  const FlatLayout::Shard& stored = layout.tensors.at(index(tensor));
  if (stored.bucket < 0)
    throw UsageError(cat("tensor ", quoted(rank.tensor(tensor).name),
                         " has no shard on rank ", rank.known_as));
  return stored;
}

GradientRuns gradient_runs(const std::vector<const Rank*>& ranks) {
  GradientRuns runs;
  for (const Rank* rank : ranks) {
    const CheckedGradients planned =
        checked_gradients(rank->part, rank->at, rank->layout, rank->kept);
    const auto add = [&](const std::vector<Extent>& extents,
                         std::vector<Engine::Stretch>& to) {
      for (const Extent& extent : extents)
        to.push_back(
            {const_run(rank->store.gradients() + extent.first), extent.count});
    };
    add(planned.counted, runs.looked);
    for (const int32_t tensor : planned.tensor)
      runs.codes.push_back(rank->nonfinite_code(tensor, false));
    add(planned.uncounted, runs.unlooked);
    add(planned.scaled, runs.clipped);
    // Of replicas only the first counts.
    if (replica_of(rank->part, rank->world_rank) == 0)
      add(planned.counted, runs.counted);
  }
  return runs;
}

}  // namespace canzona::runtime

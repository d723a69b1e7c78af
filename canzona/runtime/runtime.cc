#include "canzona/runtime/runtime.h"

#include <algorithm>
#include <exception>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/initial_states.h"
#include "canzona/runtime/element_update.h"
#include "canzona/runtime/exchanged_update.h"
#include "canzona/runtime/gradient_check.h"
#include "canzona/runtime/index.h"
#include "canzona/runtime/local_update.h"
#include "canzona/runtime/publisher.h"
#include "canzona/runtime/rank.h"
#include "canzona/runtime/rank_digest.h"
#include "canzona/runtime/rank_parameters.h"
#include "canzona/runtime/reducer.h"
#include "canzona/runtime/zero/gatherer.h"
#include "canzona/runtime/zero/scatterer.h"

namespace canzona {
namespace {

// Ranks that planned differently would wait for each other.
void require_same_plan(Rank& rank) {
  const std::string& own = rank.plan.digest;
  const auto size = static_cast<int64_t>(own.size());
  const std::vector<int64_t> bytes(index(rank.plan.mesh.world()), size);
  std::string all(index(size) * bytes.size(), ' ');
  rank.groups.control().all_gather_v(std::as_bytes(std::span(own)), bytes,
                                     std::as_writable_bytes(std::span(all)),
                                     {.label = "digest of the plan"});
  for (size_t r = 0; r < bytes.size(); ++r) {
    const std::string_view other =
        std::string_view(all).substr(r * own.size(), own.size());
    if (other != own)
      throw UsageError(cat("rank ", rank.world_rank, " holds plan ", own,
                           ", but rank ", r, " holds ", other));
  }
}

void fill_states(Rank& rank) {
  for (const std::vector<UpdateBatch>& batches : rank.updates.batches)
    for (const UpdateBatch& batch : batches)
      for (const StatePlace& state : batch.owned)
        fill_initially(rank.engine, state.fact,
                       run_of(rank.store.states() + state.first),
                       static_cast<int64_t>(batch.members.size()));
  rank.settle();
}

}  // namespace

struct Runtime::Parts {
  Parts(const Plan& plan, Communicator& world, Engine& engine,
        const RuntimeOptions& options)
      : rank(plan, world, engine, options),
        reducer(rank),
        check(rank),
        publisher(rank),
        elements(rank, publisher) {
    if (plan.grid.tp == 1)
      local = std::make_unique<LocalUpdate>(rank, publisher);
    else
      exchanged = std::make_unique<ExchangedUpdate>(rank, publisher);
    require_same_plan(rank);
    fill_states(rank);
    if (rank.groups.parameters() != nullptr)
      gatherer = std::make_unique<Gatherer>(rank, publisher);
    if (rank.groups.gradients() != nullptr)
      scatterer = std::make_unique<Scatterer>(rank, reducer);
  }

  // Other ranks are not to wait for one that will not come.
  template <class Body>
  decltype(auto) guarded(const Body& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      rank.groups.abort(cat("rank ", rank.world_rank, ": ", error.what()));
      throw;
    }
  }

  StepOutcome step(const StepSettings& settings);
  void finish_gradients();
  double busy() const;

  Rank rank;
  Reducer reducer;
  GradientCheck check;
  Publisher publisher;
  ElementUpdate elements;
  std::unique_ptr<LocalUpdate> local;
  std::unique_ptr<ExchangedUpdate> exchanged;
  std::unique_ptr<Gatherer> gatherer;    // where parameters are cut
  std::unique_ptr<Scatterer> scatterer;  // where gradients are
  RankPlace mesh_place = place_of(rank.plan.mesh, rank.world_rank);
  int64_t steps_done = 0;
  int exceptions = std::uncaught_exceptions();
};

StepOutcome Runtime::Parts::step(const StepSettings& settings) {
  if (gatherer != nullptr) gatherer->require_over();
  publisher.wait_all();
  finish_gradients();
  StepOutcome outcome;
  {
    const Stopwatch watch(outcome.seconds);
    const Span span(rank.track, "step");
    check.run(settings, reducer.nonfinite(), outcome);
    reducer.begin();
    if (scatterer != nullptr) scatterer->begin();
    if (outcome.skipped) return outcome;
    ++steps_done;
    publisher.begin();
    const double adamw = settings.adamw_learning_rate < 0
                             ? settings.learning_rate
                             : settings.adamw_learning_rate;
    // AdamW has work while the first gather is on its way.
    if (exchanged != nullptr)
      exchanged->begin(steps_done, settings.learning_rate);
    elements.run(steps_done, adamw);
    if (local != nullptr)
      local->run(steps_done, settings.learning_rate);
    else
      exchanged->finish();
    rank.settle();
    // Weights that are broadcast are part of the step.
    if (rank.plan.traffic == Traffic::kBroadcast) publisher.wait_all();
  }
  if (rank.options.overlap == Overlap::kNone) publisher.wait_all();
  return outcome;
}

void Runtime::Parts::finish_gradients() {
  if (scatterer != nullptr) scatterer->finish();
  reducer.finish();
}

double Runtime::Parts::busy() const {
  if (rank.groups.has_links())
    return std::chrono::duration<double>(rank.groups.links_busy()).count();
  double busy = std::chrono::duration<double>(rank.groups.busy()).count();
  if (gatherer != nullptr) busy += gatherer->busy();
  if (scatterer != nullptr) busy += scatterer->busy();
  return busy;
}

Runtime::Runtime(const Plan& plan, Communicator& world, Engine& engine,
                 const RuntimeOptions& options)
    : parts_(std::make_unique<Parts>(plan, world, engine, options)) {}

// A rank that unwinds leaves operations that the others still wait for. What
// was posted may still read counts and memory of the parts.
Runtime::~Runtime() {
  Groups& groups = parts_->rank.groups;
  if (std::uncaught_exceptions() > parts_->exceptions)
    groups.abort(cat("rank ", parts_->rank.world_rank, " left after an error"));
  if (parts_->gatherer != nullptr) parts_->gatherer->close();
  if (parts_->scatterer != nullptr) parts_->scatterer->close();
  groups.close();
}

const Plan& Runtime::plan() const { return parts_->rank.plan; }
const RankPlace& Runtime::place() const { return parts_->mesh_place; }

bool Runtime::holds(int32_t tensor) const {
  return parts_->rank.layout.parameters.tensors.at(index(tensor)).bucket >= 0;
}
int64_t Runtime::shard_elements(int32_t tensor) const {
  const Rank& rank = parts_->rank;
  return place_of_shard(rank, rank.layout.parameters, tensor).count;
}
std::byte* Runtime::parameter(int32_t tensor) {
  if (parts_->gatherer != nullptr) return parts_->gatherer->parameter(tensor);
  const Rank& rank = parts_->rank;
  return rank.store.parameter(
      place_of_shard(rank, rank.layout.parameters, tensor).first);
}
float* Runtime::gradient(int32_t tensor) {
  const Rank& rank = parts_->rank;
  if (rank.plan.model.tensors.at(index(tensor)).frozen)
    return rank.store.gradients() + rank.layout.gradients.forgotten;
  if (parts_->scatterer != nullptr)
    return parts_->guarded([&] { return parts_->scatterer->gradient(tensor); });
  return rank.store.gradients() +
         place_of_shard(rank, rank.layout.gradients, tensor).first;
}

void Runtime::set_parameter(int32_t tensor, std::span<const float> shard) {
  parts_->guarded([&] { canzona::set_parameter(parts_->rank, tensor, shard); });
}
std::vector<Runtime::ShardRun> Runtime::kept_runs(int32_t tensor) const {
  std::vector<ShardRun> runs;
  for (const TensorPiece& piece :
       parts_->rank.layout.parameters.pieces.at(index(tensor)))
    runs.push_back({piece.in_shard, piece.count});
  return runs;
}
void Runtime::get_kept(int32_t tensor, std::span<float> values) {
  parts_->guarded([&] { get_kept_parameter(parts_->rank, tensor, values); });
}
void Runtime::get_parameter(int32_t tensor, std::span<float> shard) {
  parts_->guarded([&] { get_whole_parameter(parts_->rank, tensor, shard); });
}
void Runtime::begin_step(std::span<const int32_t> uses,
                         int64_t num_micro_batches) {
  parts_->guarded([&] {
    if (num_micro_batches < 0)
      throw UsageError(
          cat("begin_step: ", num_micro_batches, " micro-batches"));
    parts_->reducer.expect(num_micro_batches);
    if (parts_->scatterer != nullptr)
      parts_->scatterer->expect(num_micro_batches);
    if (parts_->gatherer != nullptr) parts_->gatherer->begin(uses);
  });
}
void Runtime::release_params(int32_t module) {
  if (parts_->gatherer == nullptr) return;
  parts_->guarded([&] { parts_->gatherer->release(module); });
}
void Runtime::grad_ready(int32_t tensor) {
  if (parts_->rank.plan.model.tensors.at(index(tensor)).frozen) return;
  parts_->guarded([&] {
    if (parts_->scatterer != nullptr)
      parts_->scatterer->ready(tensor);
    else
      parts_->reducer.ready(tensor);
  });
}
void Runtime::wait_gradients() {
  parts_->guarded([&] { parts_->finish_gradients(); });
}
StepOutcome Runtime::step(const StepSettings& settings) {
  return parts_->guarded([&] { return parts_->step(settings); });
}
void Runtime::zero_gradients() {
  Rank& rank = parts_->rank;
  rank.engine.set_zero(reinterpret_cast<std::byte*>(rank.store.gradients()),
                       rank.layout.gradients.num_elements * kBytesPerFp32);
}
void Runtime::wait_params(int32_t module) {
  parts_->guarded([&] {
    if (parts_->gatherer != nullptr)
      parts_->gatherer->wait(module);
    else
      parts_->publisher.wait(module);
  });
}
void Runtime::wait_all_params() {
  parts_->guarded([&] { parts_->publisher.wait_all(); });
}

void Runtime::hold_params(bool held) { parts_->publisher.hold(held); }

int64_t Runtime::steps_done() const { return parts_->steps_done; }
RuntimeTimes Runtime::times() const {
  RuntimeTimes times = parts_->rank.times;
  const Groups& groups = parts_->rank.groups;
  times.links_busy = parts_->busy();
  times.links_modelled = groups.has_links();
  times.exchange_busy =
      std::chrono::duration<double>(groups.exchange_busy()).count();
  return times;
}
Groups::Sent Runtime::sent() {
  wait_all_params();
  return parts_->rank.groups.sent();
}
Groups::Sent Runtime::sent_slow() {
  wait_all_params();
  return parts_->rank.groups.sent_slow();
}
RankMemory Runtime::memory() const { return parts_->rank.store.memory(); }

Runtime::PoolUse Runtime::pool_use() const {
  const RankStore& store = parts_->rank.store;
  PoolSizes used = store.pools();
  used.gather_slots = used.large_gather_slots = 0;
  used.scatter_slots = used.large_scatter_slots = 0;
  PoolUse use;
  if (const Gatherer* gatherer = parts_->gatherer.get()) {
    used.gather_slots = static_cast<int32_t>(gatherer->most_slots_used(false));
    used.large_gather_slots =
        static_cast<int32_t>(gatherer->most_slots_used(true));
    use.slots_now += gatherer->num_slots_used();
  }
  if (const Scatterer* scatterer = parts_->scatterer.get()) {
    used.scatter_slots =
        static_cast<int32_t>(scatterer->most_slots_used(false));
    used.large_scatter_slots =
        static_cast<int32_t>(scatterer->most_slots_used(true));
    use.slots_now += scatterer->num_slots_used();
  }
  use.gather_slots = used.gather_slots + used.large_gather_slots;
  use.scatter_slots = used.scatter_slots + used.large_scatter_slots;
  use.bytes = used.gather_bytes(store.parameter_bytes()) + used.scatter_bytes();
  return use;
}

std::string Runtime::parameter_digest() {
  wait_all_params();
  return parts_->guarded([&] { return digest_parameters(parts_->rank); });
}
std::string Runtime::state_digest() {
  return parts_->guarded([&] { return digest_states(parts_->rank); });
}

}  // namespace canzona

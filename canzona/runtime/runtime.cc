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
#include "canzona/runtime/reducer.h"

namespace canzona {
namespace {

// Ranks that planned differently would wait for each other.
void require_same_plan(Rank& rank) {
  const std::string& own = rank.plan.digest;
  const auto size = static_cast<int64_t>(own.size());
  const std::vector<int64_t> bytes(index(rank.plan.grid.world()), size);
  std::string all(index(size) * bytes.size(), ' ');
  rank.groups.control().all_gather_v(std::as_bytes(std::span(own)), bytes,
                                     std::as_writable_bytes(std::span(all)),
                                     {.label = "digest of the plan"});
  for (size_t r = 0; r < bytes.size(); ++r) {
    const std::string_view other =
        std::string_view(all).substr(r * own.size(), own.size());
    if (other != own)
      throw UsageError(cat("rank ", rank.place.rank, " holds plan ", own,
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
  }

  // Other ranks are not to wait for one that will not come.
  template <class Body>
  decltype(auto) guarded(const Body& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      rank.groups.abort(cat("rank ", rank.place.rank, ": ", error.what()));
      throw;
    }
  }

  const RankLayout::Place& place_of_shard(int32_t tensor) const {
    const RankLayout::Place& place = rank.layout.tensors.at(index(tensor));
    if (place.bucket < 0)
      throw UsageError(cat("tensor ", quoted(rank.tensor(tensor).name),
                           " has no shard on rank ", rank.place.rank));
    return place;
  }

  StepOutcome step(const StepSettings& settings);
  void set_parameter(int32_t tensor, std::span<const float> shard);
  void get_parameter(int32_t tensor, std::span<float> shard);
  void copy_to_masters(int32_t tensor, const float* shard);

  Rank rank;
  Reducer reducer;
  GradientCheck check;
  Publisher publisher;
  ElementUpdate elements;
  std::unique_ptr<LocalUpdate> local;
  std::unique_ptr<ExchangedUpdate> exchanged;
  int64_t steps_done = 0;
  int exceptions = std::uncaught_exceptions();
};

StepOutcome Runtime::Parts::step(const StepSettings& settings) {
  publisher.wait_all();
  reducer.finish();
  StepOutcome outcome;
  {
    const Stopwatch watch(outcome.seconds);
    const Span span(rank.track, "step");
    check.run(settings, reducer.nonfinite(), outcome);
    reducer.begin();
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
  return outcome;
}

void Runtime::Parts::set_parameter(int32_t tensor,
                                   std::span<const float> shard) {
  const RankLayout::Place& place = place_of_shard(tensor);
  if (!std::cmp_equal(shard.size(), place.count))
    throw UsageError(cat("set_parameter: ", shard.size(), " values for ",
                         quoted(rank.tensor(tensor).name), ", whose shard has ",
                         place.count));
  Arena& arena = rank.engine.arena();
  const Arena::Scope scope(arena);
  auto* values = arena.take_array<float>(place.count);
  rank.engine.upload(reinterpret_cast<std::byte*>(values),
                     reinterpret_cast<const std::byte*>(shard.data()),
                     place.count * kBytesPerFp32);
  if (place.count == 0) return;
  if (!rank.store.rounded()) {
    rank.engine.copy(
        matrices(reinterpret_cast<float*>(rank.store.parameter(place.first)), 1,
                 place.count),
        matrices(values, 1, place.count));
  } else {
    rank.engine.round_to_bf16(rank.store.rounded_copy(place.first), values,
                              place.count);
    copy_to_masters(tensor, values);
  }
  rank.settle();
}

void Runtime::Parts::copy_to_masters(int32_t tensor, const float* shard) {
  const int64_t first = rank.layout.tensors[index(tensor)].first;
  const auto copy = [&](float* to, int64_t from, int64_t count) {
    rank.engine.copy(matrices(to, 1, count),
                     matrices(shard + from - first, 1, count));
  };
  for (const KeptMatrix& matrix : rank.kept.matrices) {
    if (rank.tensor_of(matrix) != tensor) continue;
    for (const Piece& piece : matrix.pieces)
      copy(rank.store.weights(piece), piece.first, piece.count);
  }
  for (const KeptElements& elements_of : rank.kept.elements)
    if (elements_of.tensor == tensor)
      copy(rank.store.weights(elements_of), elements_of.first,
           elements_of.count);
}

void Runtime::Parts::get_parameter(int32_t tensor, std::span<float> shard) {
  const RankLayout::Place& place = place_of_shard(tensor);
  if (!std::cmp_equal(shard.size(), place.count))
    throw UsageError(cat("get_parameter: room for ", shard.size(),
                         " values of ", quoted(rank.tensor(tensor).name),
                         ", whose shard has ", place.count));
  const int64_t bytes = place.count * rank.store.parameter_bytes();
  std::vector<std::byte> raw(index(bytes));
  rank.engine.download(raw.data(), rank.store.parameter(place.first), bytes);
  if (!rank.store.rounded()) {
    std::copy_n(reinterpret_cast<const float*>(raw.data()), shard.size(),
                shard.begin());
    return;
  }
  const auto* halves = reinterpret_cast<const uint16_t*>(raw.data());
  constexpr int kHalf = 16;
  for (size_t i = 0; i < shard.size(); ++i)
    shard[i] = std::bit_cast<float>(uint32_t{halves[i]} << kHalf);
}

Runtime::Runtime(const Plan& plan, Communicator& world, Engine& engine,
                 const RuntimeOptions& options)
    : parts_(std::make_unique<Parts>(plan, world, engine, options)) {}

// A rank that unwinds leaves operations that the others still wait for. What
// was posted may still read counts and memory of the parts.
Runtime::~Runtime() {
  Groups& groups = parts_->rank.groups;
  if (std::uncaught_exceptions() > parts_->exceptions)
    groups.abort(cat("rank ", parts_->rank.place.rank, " left after an error"));
  groups.close();
}

const Plan& Runtime::plan() const { return parts_->rank.plan; }
const RankPlace& Runtime::place() const { return parts_->rank.place; }

bool Runtime::holds(int32_t tensor) const {
  return parts_->rank.layout.tensors.at(index(tensor)).bucket >= 0;
}
int64_t Runtime::shard_elements(int32_t tensor) const {
  return parts_->place_of_shard(tensor).count;
}
std::byte* Runtime::parameter(int32_t tensor) {
  return parts_->rank.store.parameter(parts_->place_of_shard(tensor).first);
}
float* Runtime::gradient(int32_t tensor) {
  return parts_->rank.store.gradients() + parts_->place_of_shard(tensor).first;
}

void Runtime::set_parameter(int32_t tensor, std::span<const float> shard) {
  parts_->guarded([&] { parts_->set_parameter(tensor, shard); });
}
void Runtime::get_parameter(int32_t tensor, std::span<float> shard) {
  parts_->guarded([&] { parts_->get_parameter(tensor, shard); });
}
void Runtime::begin_step(std::span<const int32_t> /*uses*/,
                         int64_t num_micro_batches) {
  parts_->reducer.expect(num_micro_batches);
}
void Runtime::release_params(int32_t /*module*/) {}
void Runtime::grad_ready(int32_t tensor) {
  parts_->guarded([&] { parts_->reducer.ready(tensor); });
}
void Runtime::wait_gradients() {
  parts_->guarded([&] { parts_->reducer.finish(); });
}
StepOutcome Runtime::step(const StepSettings& settings) {
  return parts_->guarded([&] { return parts_->step(settings); });
}
void Runtime::zero_gradients() {
  Rank& rank = parts_->rank;
  rank.engine.set_zero(reinterpret_cast<std::byte*>(rank.store.gradients()),
                       rank.layout.num_elements * kBytesPerFp32);
}
void Runtime::wait_params(int32_t module) {
  parts_->guarded([&] { parts_->publisher.wait(module); });
}
void Runtime::wait_all_params() {
  parts_->guarded([&] { parts_->publisher.wait_all(); });
}

void Runtime::hold_params(bool held) { parts_->publisher.hold(held); }

int64_t Runtime::steps_done() const { return parts_->steps_done; }
RuntimeTimes Runtime::times() const {
  RuntimeTimes times = parts_->rank.times;
  times.links_busy =
      std::chrono::duration<double>(parts_->rank.groups.busy()).count();
  return times;
}
Groups::Sent Runtime::sent() {
  wait_all_params();
  return parts_->rank.groups.sent();
}
RankMemory Runtime::memory() const { return parts_->rank.store.memory(); }

std::string Runtime::parameter_digest() {
  wait_all_params();
  return parts_->guarded([&] { return digest_parameters(parts_->rank); });
}
std::string Runtime::state_digest() {
  return parts_->guarded([&] { return digest_states(parts_->rank); });
}

}  // namespace canzona

#include "canzona/runtime/rank_part.h"

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/rules/tensor_batch.h"
#include "canzona/runtime/rank_parameters.h"

namespace canzona {
namespace {

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

RankPart::RankPart(const PlanPart& plan, Communicator& world, Engine& engine,
                   const RuntimeOptions& options, const RankSeat& seat)
    : rank(plan, world, engine, options, seat),
      reducer(rank),
      publisher(rank),
      elements(rank, publisher) {
  if (plan.grid.tp == 1)
    local = std::make_unique<LocalUpdate>(rank, publisher);
  else
    exchanged = std::make_unique<ExchangedUpdate>(rank, publisher);
  fill_states(rank);
  if (rank.groups.parameters() != nullptr)
    gatherer = std::make_unique<Gatherer>(rank, publisher);
  if (rank.groups.gradients() != nullptr)
    scatterer = std::make_unique<Scatterer>(rank, reducer);
}

bool RankPart::holds(int32_t tensor) const {
  return rank.layout.parameters.tensors.at(index(tensor)).bucket >= 0;
}

std::byte* RankPart::parameter(int32_t tensor) const {
  if (gatherer != nullptr) return gatherer->parameter(tensor);
  return rank.store.parameter(
      place_of_shard(rank, rank.layout.parameters, tensor).first);
}

float* RankPart::gradient(int32_t tensor) {
  if (rank.plan.model.tensors.at(index(tensor)).frozen)
    return rank.store.gradients() + rank.layout.gradients.forgotten;
  if (scatterer != nullptr) return scatterer->gradient(tensor);
  return rank.store.gradients() +
         place_of_shard(rank, rank.layout.gradients, tensor).first;
}

void RankPart::begin_iteration(std::span<const int32_t> uses,
                               int64_t num_micro_batches) {
  reducer.expect(num_micro_batches);
  if (scatterer != nullptr) scatterer->expect(num_micro_batches);
  if (gatherer != nullptr) gatherer->begin(uses);
}

void RankPart::grad_ready(int32_t tensor) {
  if (rank.plan.model.tensors.at(index(tensor)).frozen) return;
  if (!holds(tensor))
    throw UsageError(cat("grad_ready: tensor ",
                         quoted(rank.tensor(tensor).name),
                         " has no shard on rank ", rank.known_as));
  if (scatterer != nullptr)
    scatterer->ready(tensor);
  else
    reducer.ready(tensor);
}

void RankPart::finish_gradients() {
  if (scatterer != nullptr) scatterer->finish();
  reducer.finish();
}

void RankPart::zero_gradients() {
  rank.engine.set_zero(reinterpret_cast<std::byte*>(rank.store.gradients()),
                       rank.layout.gradients.num_elements * kBytesPerFp32);
}

void RankPart::begin_step(int64_t step, double learning_rate) {
  publisher.begin();
  if (exchanged != nullptr) exchanged->begin(step, learning_rate);
}

void RankPart::update_elements(int64_t step, const ElementRates& rates) {
  elements.run(step, rates);
}

void RankPart::finish_step(int64_t step, double learning_rate) {
  if (local != nullptr)
    local->run(step, learning_rate);
  else
    exchanged->finish();
  rank.settle();
  // Weights that are broadcast are part of the step.
  if (rank.plan.traffic == Traffic::kBroadcast) publisher.wait_all();
}

void RankPart::close() {
  gatherer.reset();
  scatterer.reset();
  rank.groups.close();
}

std::chrono::nanoseconds RankPart::busy() const {
  std::chrono::nanoseconds busy = rank.groups.busy();
  if (gatherer != nullptr) busy += gatherer->busy();
  if (scatterer != nullptr) busy += scatterer->busy();
  return busy;
}

Runtime::PoolUse RankPart::pool_use() const {
  Runtime::PoolUse use;
  const auto most = [&](const auto& owner, int32_t& usual, int32_t& large) {
    usual = large = 0;
    if (owner == nullptr) return 0;
    usual = static_cast<int32_t>(owner->pool().most_taken(false));
    large = static_cast<int32_t>(owner->pool().most_taken(true));
    use.slots_now += owner->pool().num_taken();
    return usual + large;
  };
  PoolSizes used = rank.store.pools();
  use.gather_slots = most(gatherer, used.gather_slots, used.large_gather_slots);
  use.scatter_slots =
      most(scatterer, used.scatter_slots, used.large_scatter_slots);
  use.bytes =
      used.gather_bytes(rank.store.parameter_bytes()) + used.scatter_bytes();
  return use;
}

}  // namespace canzona

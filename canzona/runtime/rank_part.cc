#include "canzona/runtime/rank_part.h"

#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/runtime/rank_values.h"

namespace canzona::runtime {
namespace {

std::vector<Message> gradient_messages(const RankPart& own) {
  const Rank& rank = own.rank;
  if (own.gatherer != nullptr && lie_alike(rank.part))
    return own.gatherer->messages();
  return messages_of(rank.part, rank.world_rank, rank.modules,
                     Resting::kGradients);
}

}  // namespace

RankPart::RankPart(const PlanPart& part, Communicator& world, Engine& engine,
                   const RuntimeOptions& options, Track* track,
                   const std::string& prefix)
    : rank(part, world, engine, options, track, prefix),
      reducer(rank),
      publisher(rank),
      elements(rank, publisher) {
  if (part.grid.tp == 1)
    local = std::make_unique<LocalUpdate>(rank, publisher);
  else
    exchanged = std::make_unique<ExchangedUpdate>(rank, publisher);
  fill_states(rank);
  if (rank.groups.parameters() != nullptr)
    gatherer = std::make_unique<Gatherer>(rank, publisher);
  if (rank.groups.gradients() != nullptr)
    scatterer =
        std::make_unique<Scatterer>(rank, reducer, gradient_messages(*this));
}

bool RankPart::holds(int32_t tensor) const {
  return rank.layout.parameters.tensors.at(index(tensor)).bucket >= 0;
}

std::byte* RankPart::parameter(int32_t tensor) const {
  if (gatherer != nullptr) return gatherer->parameter(tensor);
  return rank.store.parameter(
      stored_shard(rank, rank.layout.parameters, tensor).first);
}

float* RankPart::gradient(int32_t tensor) {
  if (rank.part.model.tensors.at(index(tensor)).frozen)
    return rank.store.gradients() + rank.layout.gradients.forgotten;
  if (scatterer != nullptr) return scatterer->gradient(tensor);
  return rank.store.gradients() +
         stored_shard(rank, rank.layout.gradients, tensor).first;
}

void RankPart::begin_iteration(std::span<const int32_t> uses,
                               int64_t num_micro_batches) {
  reducer.expect(num_micro_batches);
  if (scatterer != nullptr) scatterer->expect(num_micro_batches);
  if (gatherer != nullptr) gatherer->begin(uses);
}

void RankPart::grad_ready(int32_t tensor) {
  if (rank.part.model.tensors.at(index(tensor)).frozen) return;
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

void RankPart::finish_step(int64_t step, double learning_rate) {
  if (local != nullptr)
    local->run(step, learning_rate);
  else
    exchanged->finish();
  if (rank.compute == nullptr) rank.settle();
  // Broadcast weights are part of the step.
  if (rank.part.traffic == Traffic::kBroadcast) publisher.wait_all();
}

void RankPart::publish_weights() {
  publisher.begin();
  round_weights(rank);
  for (size_t k = 0; k < rank.kept.matrices.size(); ++k) publisher.updated(k);
  publisher.updated_elements();
  publisher.wait_all();
}

void RankPart::close() {
  gatherer.reset();
  scatterer.reset();
  rank.groups.close();
  rank.drain();
}

std::chrono::nanoseconds RankPart::busy() const {
  std::chrono::nanoseconds busy = rank.groups.busy();
  if (gatherer != nullptr) busy += gatherer->busy();
  if (scatterer != nullptr) busy += scatterer->busy();
  return busy;
}

}  // namespace canzona::runtime

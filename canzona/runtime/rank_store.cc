#include "canzona/runtime/rank_store.h"

#include <exception>

namespace canzona {

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
    : rounded_(part.options.parameters == ParameterDtype::kBf16),
      master_of_elements_(kept.num_in_matrices),
      slot_elements_(slot_elements),
      pool_sizes_(pools) {
  const int64_t master =
      rounded_ ? kept.num_in_matrices + kept.num_elements : 0;
  parameters_ = ReservedBlock(
      engine, layout.parameters.num_elements * parameter_bytes(), world);
  gradients_ = ReservedBlock(
      engine, layout.gradients.num_elements * kBytesPerFp32, world);
  master_ = ReservedBlock(engine, master * kBytesPerFp32);
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

float* RankStore::weights(const Piece& piece) const {
  return rounded_ ? as_floats(master_) + piece.kept
                  : as_floats(parameters_) + piece.parameter;
}

float* RankStore::weights(const KeptElements& elements) const {
  return rounded_ ? as_floats(master_) + master_of_elements_ + elements.kept
                  : as_floats(parameters_) + elements.parameter;
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

}  // namespace canzona

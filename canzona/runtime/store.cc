#include "canzona/runtime/store.h"

namespace canzona {

// Nothing is read before it is written, but padding travels and is to be the
// same everywhere.
Store::Block Store::reserve(Engine& engine, int64_t bytes) {
  Block block;
  block.bytes = bytes;
  if (bytes == 0) return block;
  block.owner = {engine.memory().allocate(bytes), Free{&engine.memory()}};
  block.data = block.owner.get();
  engine.set_zero(block.data, bytes);
  return block;
}

Store::Store(const Plan& plan, const RankLayout& layout, const Kept& kept,
             const UpdatePlan& updates, int64_t slot_elements, Engine& engine)
    : rounded_(plan.options.parameters == ParameterDtype::kBf16),
      master_of_elements_(kept.num_in_matrices),
      slot_elements_(slot_elements) {
  const int64_t master =
      rounded_ ? kept.num_in_matrices + kept.num_elements : 0;
  parameters_ = reserve(engine, layout.num_elements * parameter_bytes());
  gradients_ = reserve(engine, layout.num_elements * kBytesPerFp32);
  master_ = reserve(engine, master * kBytesPerFp32);
  states_ = reserve(engine, updates.num_state_elements * kBytesPerFp32);
  slots_ = reserve(engine, kExchangeSlots * slot_elements * kBytesPerFp32);
}

float* Store::weights(const Piece& piece) const {
  return rounded_ ? as_floats(master_) + piece.kept
                  : as_floats(parameters_) + piece.first;
}

float* Store::weights(const KeptElements& elements) const {
  return rounded_ ? as_floats(master_) + master_of_elements_ + elements.kept
                  : as_floats(parameters_) + elements.first;
}

uint16_t* Store::rounded_copy(int64_t element) const {
  return rounded_ ? reinterpret_cast<uint16_t*>(parameters_.data) + element
                  : nullptr;
}

RankMemory Store::memory() const {
  return {Bytes(parameters_.bytes), Bytes(gradients_.bytes),
          Bytes(master_.bytes), Bytes(states_.bytes), Bytes(slots_.bytes)};
}

}  // namespace canzona

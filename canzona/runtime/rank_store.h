// The memory of one rank, reserved once and never grown: exactly the bytes that
// the plan predicted.
//
//   RankStore store(part, layout, kept, updates, slot_elements, pools, engine);
//   Shard shard = store.shard(kept.matrices[0], piece, states);
//
// Memory is the engine's. If `world` is not null, memory that collectives
// access may come from the library behind it (Communicator::allocate). Views
// are valid as long as the store.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "canzona/linalg/engine.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/updates.h"
#include "canzona/runtime/groups.h"

namespace canzona {

// One zero-initialized block of memory.
class ReservedBlock {
 public:
  ReservedBlock() = default;
  // Takes memory that collectives transfer fast, if `world` is not null and
  // provides it.
  ReservedBlock(Engine& engine, int64_t bytes, Communicator* world = nullptr);

  std::byte* data() const { return data_.get(); }
  int64_t bytes() const { return bytes_; }
  std::span<std::byte> all() const {
    return {data_.get(), static_cast<size_t>(bytes_)};
  }

 private:
  // The library's memory may be released only once nothing uses it any more.
  struct Release {
    void operator()(std::byte* memory) const;
    Engine* engine;
    Communicator* world;  // null: the engine's own memory
  };
  std::unique_ptr<std::byte, Release> data_{nullptr, Release{nullptr, nullptr}};
  int64_t bytes_ = 0;
};

// A read-only run.
inline ConstRun const_run(const float* data) { return run_of(data); }

class RankStore {
 public:
  RankStore(const PlanPart& part, const RankLayout& layout, const Kept& kept,
            const UpdatePlan& updates, int64_t slot_elements,
            int64_t room_bytes, const PoolSizes& pools, Engine& engine,
            Communicator* world = nullptr);

  // Returns the memory that collectives access, for their groups to register.
  GroupMemory group_memory(bool parameters_alike, bool gradients_alike) const;

  float* gradients() const { return as_floats(gradients_); }
  // The copy that forward and backward use: fp32, or bf16.
  bool rounded() const { return rounded_; }
  int64_t parameter_bytes() const { return rounded_ ? 2 : 4; }
  std::byte* parameters() const { return parameters_.data(); }
  std::byte* parameter(int64_t element) const {
    return parameters_.data() + element * parameter_bytes();
  }

  // fp32 weights of a piece of a matrix, or of AdamW's elements. They are the
  // parameters themselves where those are fp32.
  float* weights(const Piece& piece) const;
  float* weights(const KeptElements& elements) const;
  uint16_t* rounded_copy(int64_t element) const;

  float* masters() const { return as_floats(master_); }
  float* states() const { return as_floats(states_); }
  float* slot(int64_t number) const {
    return as_floats(slots_) + number * slot_elements_;
  }

  // The memory in which teams exchange sums and factors.
  std::byte* rooms() const { return rooms_.data(); }

  // Pools for modules in transit: slots of whole tensors, and staging.
  const PoolSizes& pools() const { return pool_sizes_; }
  // Large slots are numbered after the others.
  std::byte* gather_slot(int64_t slot) const {
    return gather_pool_.data() +
           slot_at(slot, pool_sizes_.gather_slots) * parameter_bytes();
  }
  std::byte* parameter_staging() const {
    return gather_slot(pool_sizes_.gather_slots +
                       pool_sizes_.large_gather_slots);
  }
  float* scatter_slot(int64_t slot) const {
    return as_floats(scatter_pool_) + slot_at(slot, pool_sizes_.scatter_slots);
  }
  float* gradient_staging() const {
    return scatter_slot(pool_sizes_.scatter_slots +
                        pool_sizes_.large_scatter_slots);
  }

  // The reserved memory.
  RankMemory memory() const;

 private:
  int64_t slot_at(int64_t slot, int64_t num_usual) const {
    const int64_t usual = std::min(slot, num_usual);
    return usual * pool_sizes_.slot + (slot - usual) * pool_sizes_.large_slot;
  }
  static float* as_floats(const ReservedBlock& block) {
    return reinterpret_cast<float*>(block.data());
  }

  bool rounded_;
  int64_t master_of_elements_ = 0;
  int64_t slot_elements_ = 0;
  PoolSizes pool_sizes_;
  ReservedBlock parameters_, gradients_, master_, states_, slots_, rooms_;
  ReservedBlock gather_pool_, scatter_pool_;
};

}  // namespace canzona

// Tells a communicator how to access device memory. This is where comm, which
// knows no devices, and linalg, which knows no collectives, meet.
//
//   const EngineWireOps ops(memory_ops("cuda"));
//   auto dp = world.split(t, d, "dp", {}, &ops);
//
// If an engine makes lanes (Engine::make_lane), collectives run on one of them,
// and compute runs on the engine's own:
//
//   EngineLane sums(engine.make_lane());
//   ComputeLane compute(engine);
//   sums.wait_for(mark_of_compute);
//
// Pieces are aligned to their elements (8 bytes for elements of two words). The
// owner of the memory waits for its engines before passing pieces. Callable
// from any number of threads.
#pragma once

#include <memory>

#include "canzona/comm/transport.h"
#include "canzona/comm/wire_ops.h"
#include "canzona/linalg/engine.h"
#include "canzona/linalg/memory.h"

namespace canzona {

class EngineWireOps : public WireOps {
 public:
  // `memory` must outlive it.
  explicit EngineWireOps(const MemoryOps& memory) : memory_(memory) {}

  bool is_host() const override { return memory_.is_host(); }
  std::byte* allocate(int64_t bytes) const override {
    return memory_.allocate(bytes);
  }
  void release(std::byte* memory) const override { memory_.release(memory); }
  void copy(std::byte* to, const std::byte* from,
            int64_t bytes) const override {
    memory_.copy(to, from, bytes);
  }
  void add(Reduction reduction, std::byte* sum, const std::byte* a,
           const std::byte* b, int64_t count) const override;
  void narrow(Reduction reduction, std::byte* wire, const std::byte* from,
              int64_t count) const override;
  void widen(Reduction reduction, std::byte* to, const std::byte* wire,
             int64_t count) const override;
  bool to_limbs(std::byte* limbs, const std::byte* from,
                int64_t count) const override;
  void from_limbs(std::byte* to, const std::byte* limbs,
                  int64_t count) const override;
  bool sum_at_once(Reduction reduction,
                   std::span<const std::byte* const> pieces, int64_t count,
                   std::byte* sum) const override;
  bool sums_in_place(Reduction reduction, int num_pieces) const override;
  void sum_in_place(Reduction reduction,
                    std::span<const std::byte* const> pieces, int64_t count,
                    std::byte* sum) const override;

 private:
  void join_in_place(Reduction reduction,
                     std::span<const std::byte* const> pieces, int64_t count,
                     std::byte* sum) const;

  const MemoryOps& memory_;
};

// Its marks are events of the device.
class EngineLane final : public Lane {
 public:
  explicit EngineLane(std::unique_ptr<MemoryLane> lane)
      : lane_(std::move(lane)), ops_(lane_->ops()) {}

  const WireOps& ops() const override { return ops_; }
  std::unique_ptr<Mark> make_mark() const override;
  void record(Mark& mark) override;
  void wait_for(const Mark& mark) override;
  LaneWord* make_word() override { return &lane_->make_word(); }
  void write(LaneWord& word, uint32_t value) override {
    lane_->write(word, value);
  }
  void wait_for(const LaneWord& word, uint32_t value) override {
    lane_->wait_until(word, value);
  }
  void* native() override { return lane_->native(); }
  void record_in(Event& event) { lane_->record_in(event); }

 private:
  std::unique_ptr<MemoryLane> lane_;
  EngineWireOps ops_;
};

// No collectives are issued here: ops() must not be called.
class ComputeLane final : public Lane {
 public:
  // The engine must outlive it.
  explicit ComputeLane(Engine& engine) : engine_(engine) {}

  const WireOps& ops() const override;
  std::unique_ptr<Mark> make_mark() const override;
  void record(Mark& mark) override;
  using Lane::wait_for;
  void wait_for(const Mark& mark) override;

 private:
  Engine& engine_;
};

}  // namespace canzona

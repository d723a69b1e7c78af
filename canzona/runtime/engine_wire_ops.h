// How a communicator treats memory of a device: comm knows none, linalg knows
// no collectives, and here they meet.
//
//   const EngineWireOps ops(memory_ops("cuda"));
//   auto dp = world.split(t, d, "dp", {}, &ops);
//
// Pieces are aligned to their elements (8 bytes for those of two words). The
// memory's owner waits for its engines before it hands pieces over. Any number
// of threads may call.
#pragma once

#include "canzona/comm/wire_ops.h"
#include "canzona/linalg/memory.h"

namespace canzona {

class EngineWireOps : public WireOps {
 public:
  // `memory` outlives it.
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
  bool sum_at_once(Reduction reduction,
                   std::span<const std::byte* const> pieces, int64_t count,
                   std::byte* sum) const override;

 private:
  const MemoryOps& memory_;
};

}  // namespace canzona

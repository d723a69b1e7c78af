// WireOps of the host that a test can change in parts.
//
//   class Failing final : public HostOps {
//     void copy(…) const override { throw NumericalError("no more paper"); }
//   };
#pragma once

#include "canzona/comm/wire_ops.h"

namespace canzona::comm {

class HostOps : public WireOps {
 public:
  std::byte* allocate(int64_t bytes) const override {
    return cpu_wire_ops().allocate(bytes);
  }
  void release(std::byte* memory) const override {
    cpu_wire_ops().release(memory);
  }
  void copy(std::byte* to, const std::byte* from,
            int64_t bytes) const override {
    cpu_wire_ops().copy(to, from, bytes);
  }
  void add(Reduction reduction, std::byte* sum, const std::byte* a,
           const std::byte* b, int64_t count) const override {
    cpu_wire_ops().add(reduction, sum, a, b, count);
  }
  void narrow(Reduction reduction, std::byte* wire, const std::byte* from,
              int64_t count) const override {
    cpu_wire_ops().narrow(reduction, wire, from, count);
  }
  void widen(Reduction reduction, std::byte* to, const std::byte* wire,
             int64_t count) const override {
    cpu_wire_ops().widen(reduction, to, wire, count);
  }
};

}  // namespace canzona::comm

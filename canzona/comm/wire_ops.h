// What a communicator does to memory. It knows no device: whoever owns the
// memory says how it is copied, added and converted.
//
//   Communicator world(std::move(transport), cpu_wire_ops(), options, "world");
//
// A device derives its own. Every function has ended when it returns, may be
// called by several threads at once, and gives the same bits for an element
// whatever its place and the number of its neighbours.
#pragma once

#include <cstddef>
#include <cstdint>

#include "canzona/comm/reduction.h"

namespace canzona {

class WireOps {
 public:
  virtual ~WireOps() = default;

  // Whether the memory is the host's, which any library can read.
  virtual bool is_host() const { return true; }

  // Memory for pieces on their way; 64-byte aligned.
  virtual std::byte* allocate(int64_t bytes) const = 0;
  virtual void release(std::byte* memory) const = 0;

  // Either side may also be plain memory of the host.
  virtual void copy(std::byte* to, const std::byte* from,
                    int64_t bytes) const = 0;

  // sum = a + b (or their maximum), as numbers in memory; `sum` may be a or b.
  virtual void add(Reduction reduction, std::byte* sum, const std::byte* a,
                   const std::byte* b, int64_t count) const = 0;

  // From memory to the wire's form and back; only if is_narrowed().
  virtual void narrow(Reduction reduction, std::byte* wire,
                      const std::byte* from, int64_t count) const = 0;
  virtual void widen(Reduction reduction, std::byte* to, const std::byte* wire,
                     int64_t count) const = 0;
};

// For memory of the host. Lives as long as the program.
const WireOps& cpu_wire_ops();

}  // namespace canzona

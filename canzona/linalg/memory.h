// Where the memory of a device comes from.
//
//   Arena arena(engine.memory());
//
// A source outlives what was allocated from it. Any thread may call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace canzona {

class Memory {
 public:
  virtual ~Memory() = default;

  // Uninitialised, aligned to 128 bytes or more; std::bad_alloc if there is
  // none left.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
};

// Of this process; in large pages where a block is large.
Memory& host_memory();

}  // namespace canzona

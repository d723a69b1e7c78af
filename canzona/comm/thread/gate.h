// Every collective of every rank passes a Gate before its first message: a test
// can look, delay, or hold it back (test_gate.h).
//
//   ThreadWorld::Options options{.gate = &gate};  // of all ranks
//   MpiOptions options{.gate = &gate};            // of this process
//
// The gate belongs to the caller and outlives the world. Ranks' threads call at
// the same time.
#pragma once

#include <string_view>

#include "canzona/comm/call.h"

namespace canzona {

class Gate {
 public:
  virtual ~Gate() = default;

  // Returns when the operation may begin. The texts live until then.
  virtual void pass(std::string_view group, Operation operation,
                    std::string_view label, int world_rank) = 0;

  // The world of threads has ended: whoever is held goes on, and nobody is held
  // again. A process of MPI has nobody left to say so.
  virtual void open_for_good() noexcept = 0;
};

}  // namespace canzona

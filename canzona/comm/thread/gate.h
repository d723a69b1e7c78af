// Every collective of every rank passes a Gate before its first message; a test
// can observe, delay or hold it (test_gate.h).
//
//   ThreadWorld::Options options{.gate = &gate};  // of all ranks
//   MpiOptions options{.gate = &gate};            // of this process
//
// The gate belongs to the caller and must outlive the world. Threads of several
// ranks call it concurrently.
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

  // Called when the world of threads has ended: releases everything that is
  // held and holds nothing again. A process under MPI has nobody to call it.
  virtual void open_for_good() noexcept = 0;
};

}  // namespace canzona

// `canzona bench collectives`: how its answer looks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "canzona/comm/library_memory.h"
#include "canzona/measure/collectives.h"
#include "canzona/report/terminal.h"

namespace canzona {

struct CollectivesReport {
  std::string transport;     // "thread", "mpi", "tcp" or "nccl"
  std::string library = {};  // "NCCL 2.28.9 (…)"; "": none of its own
  std::string device;        // "cpu", or the GPU's name
  int num_ranks = 1;
  int64_t bytes = 0;
  int rounds = 0;
  Collectives measured;
  // Rank 0's, and the most of any rank; empty without NCCL.
  std::vector<LibraryMemory> library_memory = {};
  int64_t largest_library_bytes = 0;
};

std::string collectives_text(const CollectivesReport& report, const Ink& ink);
std::string collectives_json(const CollectivesReport& report);

}  // namespace canzona

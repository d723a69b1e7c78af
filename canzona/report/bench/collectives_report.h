// `canzona bench collectives`: how its answer looks.
#pragma once

#include <string>

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
};

std::string collectives_text(const CollectivesReport& report, const Ink& ink);
std::string collectives_json(const CollectivesReport& report);

}  // namespace canzona

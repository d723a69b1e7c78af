// `canzona bench step`: what it was asked, and how its answer looks.
#pragma once

#include <string>
#include <vector>

#include "canzona/measure/step_bench.h"
#include "canzona/report/bench/bench_text.h"

namespace canzona {

// A run of all strategies, with what the views say of it.
struct StepReport {
  std::string model;
  Mesh mesh;
  std::string rule;
  PrecisionChoice precision;
  std::string transport;  // "thread", "mpi", "tcp" or "nccl"
  StepTrialRequest trial;
  StepBench bench;
  bool audited = false;
  // Rank 0's, and the most of any rank; empty without NCCL.
  std::vector<LibraryMemory> library_memory = {};
  int64_t largest_library_bytes = 0;
};

// False if strategies lead to different parameters or states.
bool digests_agree(const StepReport& report);
// Lists what a reader of the figures must know.
std::vector<std::string> warnings_of(const StepReport& report);

std::string step_text(const StepReport& report, const Ink& ink);
std::string step_json(const StepReport& report);

}  // namespace canzona

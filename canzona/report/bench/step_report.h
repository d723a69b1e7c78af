// The request and the answer of `canzona bench step`.
#pragma once

#include <string>
#include <vector>

#include "canzona/measure/step_bench.h"
#include "canzona/report/bench/bench_text.h"

namespace canzona {

// A run of all strategies, and what the views need to describe it.
struct StepReport {
  std::string model;
  Mesh mesh;
  std::string rule;
  PrecisionChoice precision;
  std::string transport;  // "thread", "mpi", "tcp" or "nccl"
  StepTrialRequest trial;
  StepBench bench;
  bool audited = false;
  // The memory of rank 0, and the most of any rank; empty without NCCL.
  std::vector<LibraryMemory> library_memory = {};
  int64_t largest_library_bytes = 0;
};

// False if strategies lead to different parameters or states.
bool digests_agree(const StepReport& report);
// Lists warnings that readers of the figures must know.
std::vector<std::string> warnings_of(const StepReport& report);

std::string step_text(const StepReport& report, const Ink& ink);
std::string step_json(const StepReport& report);

}  // namespace canzona

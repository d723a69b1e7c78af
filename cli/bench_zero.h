// `canzona bench zero`: how its answer looks.
#pragma once

#include <string>
#include <vector>

#include "canzona/report/terminal_style.h"
#include "canzona/trials/zero_bench.h"
#include "cli/precision.h"

namespace canzona::cli {

// A run of all cells, with what the views say of it.
struct ZeroReport {
  std::string model;
  int64_t num_parameters = 0;
  Mesh mesh;
  std::string rule;
  PrecisionChoice precision;
  std::string strategy;
  int ranks_per_node = 0;
  Reach reach = Reach::kDirect;
  int64_t num_micro_batches = 1;
  int64_t tokens = 0;  // of a data-parallel rank and micro-batch
  double comm_ratio = 0;
  IterationTrialRequest trial;
  int repeats = 0;
  ZeroBench bench;

  std::vector<const ZeroCell*> ran() const;
  std::string disagreement() const {
    return bench.disagreement(mesh, num_micro_batches);
  }
};

// What a reader of the figures must know.
std::vector<std::string> warnings_of(const ZeroReport& report);

std::string zero_text(const ZeroReport& report, const Ink& ink);
std::string zero_json(const ZeroReport& report);

}  // namespace canzona::cli

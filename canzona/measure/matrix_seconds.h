// Measures how long a rule takes for one matrix, and how fast element-wise
// passes are, while all ranks of a group measure the same.
//
//   MatrixSeconds m = measure_on_cpu(world, subject, {512, 1024}, 3);
//   double seconds_of_one = m.seconds / m.batch;
//
// All ranks call, and all get the same answer. Nothing is measured from
// caches: a rank goes round more matrices than they hold, as it does in a step.
#pragma once

#include <string>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"
#include "canzona/rules/facts.h"

namespace canzona {

// A rule, and shapes on which it runs one algorithm.
struct CostSubject {
  std::string rule;
  RuleOptions options;
  std::vector<MatrixShape> shapes;
};

struct MatrixSeconds {
  MatrixShape shape;
  int64_t batch = 1;           // matrices that ran one after the other, or at
                               // once
  double seconds = 0;          // of a step of all
  double refresh_seconds = 0;  // of all, beside that; 0: nothing to refresh
};

// One rank alone gives its quickest of `rounds`, many their median: what one
// takes from another is part of the answer.
MatrixSeconds measure_on_cpu(Communicator& world, const CostSubject& subject,
                             MatrixShape shape, int rounds);
MatrixSeconds measure_on_gpu(Engine& engine, const CostSubject& subject,
                             MatrixShape shape, int rounds);

// Bytes per second on a core of the passes that a step makes beside the rule:
// gradients scaled and looked at, AdamW.
double measure_element_rate(Communicator& world);

}  // namespace canzona

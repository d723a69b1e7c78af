// Measures how long a rule takes for one matrix and how fast element-wise
// passes are, while all ranks of a group do the same.
//
//   MatrixSeconds m = measure_on_cpu(world, subject, {512, 1024}, 3);
//   double seconds_of_one = m.seconds / m.batch;
//
// All ranks must call, and all get the same answer. Caches are cold: a rank
// cycles through more matrices than they hold, as it does in a step.
#pragma once

#include <string>
#include <vector>

#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"
#include "canzona/rules/facts.h"

namespace canzona {

// A rule, and shapes on which it runs the same algorithm.
struct CostSubject {
  std::string rule;
  RuleOptions options;
  std::vector<MatrixShape> shapes;
};

struct MatrixSeconds {
  MatrixShape shape;
  int64_t batch = 1;           // matrices that ran in sequence or at once
  double seconds = 0;          // for a step of all matrices
  double refresh_seconds = 0;  // extra time of a refresh; 0: none
};

// A single rank returns the minimum over `rounds`, several return their median:
// what ranks take from each other is part of the answer.
MatrixSeconds measure_on_cpu(Communicator& world, const CostSubject& subject,
                             MatrixShape shape, int rounds);
MatrixSeconds measure_on_gpu(Engine& engine, const CostSubject& subject,
                             MatrixShape shape, int rounds);

// Returns bytes per second on one core for the passes that a step makes beside
// the rule: scaling and checking gradients, AdamW.
double measure_element_rate(Communicator& world);

}  // namespace canzona

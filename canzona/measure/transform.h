// Measures how long Newton–Schulz takes in each form and precision, and how
// exact it is.
//
//   TransformRequest request{.shape = {2048, 6144}, .batch = 4};
//   for (const TransformRow& row : measure_transform(request)) …
//
// All forms work on the same input, one after the other in every round, so that
// what disturbs the machine disturbs all; the least time counts.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "canzona/measure/machine.h"
#include "canzona/rules/facts.h"

namespace canzona {

struct TransformRequest {
  MatrixShape shape;
  int64_t batch = 1;
  std::vector<std::string> algorithms = {"standard", "symmetric", "gram"};
  std::vector<std::string> precisions = {"fp32", "bf16"};
  std::string device = "cpu";
  int num_threads = 1;  // of the CPU
  int rounds = 10;
  RuleOptions options;  // of muon
};

struct TransformRow {
  std::string algorithm;
  std::string precision;
  double seconds = 0;        // of the whole batch
  double error_vs_fp64 = 0;  // |O - O64|_F / |O64|_F, the first matrix
};

using Progress = std::function<void(const std::string& what)>;

// UsageError if the shape is empty or does not fit the memory.
std::vector<TransformRow> measure_transform(const TransformRequest& request,
                                            const Progress& progress);

// The least that a row can take: the flops that its form needs, at the best
// rate measured for such products, or the input read and the result written
// once, whichever is more.
double transform_floor(const TransformRequest& request, const TransformRow& row,
                       const MachineRates& rates);

}  // namespace canzona

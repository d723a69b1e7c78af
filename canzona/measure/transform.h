// Measures how long Newton–Schulz takes in each form and precision, and how
// accurate it is.
//
//   TransformRequest request{.shape = {2048, 6144}, .batch = 4};
//   for (const TransformRow& row : measure_transform(request)) …
//
// All forms work on the same input, one after the other in every round, so that
// disturbances affect all of them; the minimum counts.
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
  int num_threads = 1;  // on the CPU
  int rounds = 10;
  RuleOptions options;  // of muon
};

struct TransformRow {
  std::string algorithm;
  std::string precision;
  double seconds = 0;        // for the whole batch
  double error_vs_fp64 = 0;  // |O - O64|_F / |O64|_F of the first matrix
};

using Progress = std::function<void(const std::string& what)>;

// Throws UsageError if the shape is empty or does not fit in memory.
std::vector<TransformRow> measure_transform(const TransformRequest& request,
                                            const Progress& progress);

// Returns the minimum time of a row: the flops of its form at the best rate
// measured for such products, or reading the input and writing the result once,
// whichever is more.
double transform_floor(const TransformRequest& request, const TransformRow& row,
                       const MachineRates& rates);

}  // namespace canzona

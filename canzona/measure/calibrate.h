// Measures what rules cost on this machine and writes the table that the
// planner reads (docs/cost_table.md).
#pragma once

#include <string>
#include <vector>

#include "canzona/measure/machine.h"
#include "canzona/measure/transform.h"
#include "canzona/rules/facts.h"

namespace canzona {

struct CalibrateRequest {
  std::string device = "cpu";
  std::string precision = "fp32";  // of Muon's products
  int rounds = 3;
  // Muon's forms on the first, the rules with factors on the second.
  std::vector<MatrixShape> shapes = {{128, 512},   {256, 256},  {256, 1024},
                                     {512, 512},   {512, 2048}, {1024, 1024},
                                     {1024, 3072}, {2048, 2048}};
  std::vector<MatrixShape> factored_shapes = {
      {128, 512}, {256, 256}, {512, 512}, {512, 1024}};
  std::string date;  // "2026-03-31"
};

// The same with the shapes of language models, which a GPU takes in batches.
CalibrateRequest gpu_calibration();

// The table as JSON. UsageError if the BLAS runs kernels that do not fit this
// CPU: its times say nothing about the machine.
std::string calibrate(const CalibrateRequest& request,
                      const MachineInfo& machine, const Progress& progress);

}  // namespace canzona

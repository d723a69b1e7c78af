// Estimates how long a plan's steps would take here, for predictions that are
// printed where there is no cost table.
//
//   MachineSpeed speed = measure_speed(world, *engine, product_type(plan));
//   std::vector<RankCost> ranks = predict(priced(plan, speed));
//
// A priced copy is for printing alone: plans never depend on a clock.
#pragma once

#include "canzona/comm/communicator.h"
#include "canzona/linalg/engine.h"
#include "canzona/plan/plan.h"

namespace canzona {

// The speed of one rank while all of them work.
struct MachineSpeed {
  double flops_per_second = 0;
  double copy_bytes_per_second = 0;
  DType precision = DType::kFp32;  // of the products
};

// Less than a second in fp32. All ranks call at once; all get the same.
MachineSpeed measure_speed(Communicator& world, Engine& engine,
                           DType precision);

// On ranks that are threads of this process: as many as there are, at most one
// for each CPU.
MachineSpeed measure_speed_here(const Plan& plan);

// Type of the products of the plan's rule: bf16, else fp32.
DType product_type(const Plan& plan);

// True if the plan's costs are flops, which only a rate turns into seconds.
bool lacks_cost_table(const Plan& plan);

// The plan with measured rates in the place of nominal ones; links that nobody
// gave become copies in memory. A plan with a cost table is copied as it is.
Plan priced(const Plan& plan, const MachineSpeed& speed);

}  // namespace canzona

// Estimates how long a plan's steps would take here, for predictions that are
// printed without a cost table.
//
//   MachineSpeed speed = measure_speed(world, *engine, product_type(plan));
//   std::vector<RankCost> ranks = predict(priced(plan, speed));
//
// A priced copy is only for printing: plans never depend on a clock.
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

// Takes less than a second in fp32. All ranks must call at the same time; all
// get the same result.
MachineSpeed measure_speed(Communicator& world, Engine& engine,
                           DType precision);

// Measures on ranks that are threads of this process: as many as in the plan,
// at most one per CPU.
MachineSpeed measure_speed_here(const Plan& plan);

// The type of the rule's products: bf16, otherwise fp32.
DType product_type(const Plan& plan);

// True if the plan's costs are flops, which need a rate to become seconds.
bool lacks_cost_table(const Plan& plan);

// Returns the plan with measured rates instead of nominal ones; links that were
// not given become copies in memory. A plan with a cost table is returned
// unchanged.
Plan priced(const Plan& plan, const MachineSpeed& speed);

}  // namespace canzona

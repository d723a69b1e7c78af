// The micro-groups of one home, as rounds of blocks per tp rank.
//
//   const int32_t rank = busiest_rank(shown);
//   for (const DrawnRound& round : rounds_of(plan, coordinates_of(mesh, rank)))
//   …
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/report/places.h"
#include "canzona/report/report_plan.h"

namespace canzona {

struct Block {
  size_t matrix = 0;
  double cost = 0;  // ticks, mean over a period
};

struct DrawnRound {
  int32_t number = 0;
  std::vector<std::vector<Block>> blocks;  // per tp rank
  double widest = 0;                       // work of its busiest owner
};

// The rank with the largest load over a period, the first of equals.
int32_t busiest_rank(const ReportPlan& shown);

// The rounds of the home (and stage) at `place`, in order.
std::vector<DrawnRound> rounds_of(const PlanPart& plan,
                                  const Coordinates& place);

// Distinct shapes of the matrices in `rounds`, the largest first.
std::vector<MatrixShape> shapes_of(const SettledRequest& plan,
                                   const std::vector<DrawnRound>& rounds);

}  // namespace canzona

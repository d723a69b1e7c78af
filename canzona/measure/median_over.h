// The median of what all ranks have measured. All ranks call.
#pragma once

#include <utility>
#include <vector>

#include "canzona/comm/from_all.h"
#include "canzona/measure/step_times.h"

namespace canzona {

inline double median_over(Communicator& world, double own) {
  std::vector<double> all;
  for (const std::vector<double>& row :
       from_all<double>(world, std::span(&own, 1)))
    all.push_back(row.front());
  return median_of(std::move(all));
}

}  // namespace canzona

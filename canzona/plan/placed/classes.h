// Classes of tensors: those whose replicas are the same ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/placed/placed_plan.h"

namespace canzona {

struct PlacedClasses {
  std::vector<PlacedClass> classes;  // by their first tensors; no rounds yet
  std::vector<int32_t> class_of;     // by tensor; -1: none
};

// `sets` has the sets of replicas of every tensor, none for tensors that are in
// no class. Two tensors may share a class if every set of one is a set of the
// other or has no rank in common with it; a class is as large as such tensors
// that share ranks make it.
PlacedClasses make_placed_classes(
    const std::vector<std::vector<std::vector<int32_t>>>& sets, int32_t world);

}  // namespace canzona

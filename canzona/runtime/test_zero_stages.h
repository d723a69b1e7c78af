// The operations of hierarchical ZeRO between four ranks in which one may fail,
// for tests: those of layer 1.
//
//   for (const ZeroStage& stage : zero_stages())
//     if (stage.is(group, operation, label) && rank == victim) …
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/call.h"
#include "canzona/plan/zero.h"

namespace canzona {

struct ZeroStage {
  std::string name;
  ZeroSizes sizes;
  std::string group;
  Operation operation;
  int distance;  // to the one that a rank meets in it

  bool is(std::string_view of_group, Operation of_operation,
          std::string_view label) const {
    return of_group.starts_with(group) && of_operation == operation &&
           label == "layer 1";
  }
  int peer_of(int rank) const { return rank ^ distance; }
};

inline std::vector<ZeroStage> zero_stages() {
  return {{"gather", {4, 2, 2}, "parameters", Operation::kAllGather, 1},
          {"scatter", {4, 2, 2}, "gradients", Operation::kReduceScatter, 1},
          {"sum", {4, 2, 2}, "data", Operation::kReduceScatter, 2},
          {"replicas", {2, 2, 2}, "replicas", Operation::kAllReduce, 2},
          {"publish", {4, 2, 2}, "data", Operation::kAllGather, 2}};
}

}  // namespace canzona

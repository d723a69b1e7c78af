// The operations of hierarchical ZeRO between four ranks in which one may fail,
// for tests: those of layer 1.
//
//   for (const ZeroStage& stage : zero_stages())
//     if (stage.is(group, operation, label) && rank == victim) …
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/flight_record.h"
#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime {

struct ZeroStage {
  std::string name;
  ZeroSizes sizes;
  std::string group;
  Operation operation;
  int distance;  // to the rank that it communicates with
  int32_t ep = 1;
  Reach reach = Reach::kDirect;  // on nodes of two

  bool is(std::string_view of_group, Operation of_operation,
          std::string_view label) const {
    return of_group.starts_with(group) && of_operation == operation &&
           label.starts_with("layer 1");
  }
  int peer_of(int rank) const { return rank ^ distance; }
};

inline std::vector<ZeroStage> zero_stages() {
  constexpr ZeroSizes kHalves{4, 2, 2};
  constexpr Operation kGather = Operation::kAllGather;
  constexpr Operation kScatter = Operation::kReduceScatter;
  return {{"gather", kHalves, "parameters", kGather, 1},
          {"scatter", kHalves, "gradients", kScatter, 1},
          {"sum", kHalves, "data", kScatter, 2},
          {"replicas", {2, 2, 2}, "replicas", Operation::kAllReduce, 2},
          {"publish", kHalves, "data", kGather, 2},
          {"gather_across",
           {4, 4, 4},
           "parameters across",
           kGather,
           2,
           1,
           Reach::kPerNode},
          {"gather_inside",
           {4, 4, 4},
           "parameters inside",
           kGather,
           1,
           1,
           Reach::kPerNode},
          {"scatter_inside",
           {4, 4, 4},
           "gradients inside",
           kScatter,
           1,
           1,
           Reach::kPerNode},
          {"scatter_across",
           {4, 4, 4},
           "gradients across",
           kScatter,
           2,
           1,
           Reach::kPerNode},
          {"experts_gather", kHalves, "experts: parameters", kGather, 2, 2},
          {"experts_scatter", kHalves, "experts: gradients", kScatter, 2, 2}};
}

inline Plan zero_stage_plan(const ZeroStage& stage, Overlap overlap) {
  ZeroVariant variant{.sizes = stage.sizes,
                      .overlap = overlap,
                      .reach = stage.reach,
                      .ranks_per_node = 2};
  if (stage.ep == 1) return zero_plan(toy_model(), 4, variant);
  variant.ep = stage.ep;
  variant.experts = {2, 2, 2};
  return zero_plan(toy_moe(), 4 / stage.ep, variant);
}

}  // namespace canzona::runtime

// `balanced` over a grid of models and meshes, for tests. Costs, loads and
// bytes are counted here anew, from a plan's homes and owners alone.
#pragma once

#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <optional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "canzona/base/json_reader.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan {

// A model on a mesh, and the formula for costs.
struct GridCell {
  std::string preset;
  bool fused = false;
  int32_t ranks = 1;
  int32_t tp = 1;
  bool standard = false;  // otherwise Gram
  double optimum = 0;     // best known makespan over mean; 0: not known
};

inline std::string to_string(const GridCell& cell) {
  return cat(cell.preset, cell.fused ? " fused" : " separate",
             " dp=", cell.ranks / cell.tp, ",tp=", cell.tp,
             cell.standard ? " standard" : " gram");
}

inline std::vector<int32_t> tp_sizes(int32_t ranks) {
  std::vector<int32_t> out;
  for (int32_t tp : {1, 2, 4, 8}) {
    if (ranks % tp == 0) out.push_back(tp);
  }
  return out;
}

// Worlds of 8 to 512 ranks, each as dp × tp with tp up to 8.
inline std::vector<GridCell> grid_of(const std::vector<std::string>& presets) {
  std::vector<GridCell> cells;
  for (const std::string& preset : presets) {
    for (bool fused : {false, true}) {
      for (int32_t ranks : {8, 32, 64, 128, 256, 512}) {
        for (int32_t tp : tp_sizes(ranks)) {
          cells.push_back({preset, fused, ranks, tp, false, 0});
        }
      }
    }
  }
  return cells;
}

// The cells of the data file, each on all meshes of so many ranks.
inline std::vector<GridCell> optima_of(
    const std::vector<std::string>& presets) {
  std::ifstream file(CANZONA_TEST_DATA "/makespan_optimum.json");
  std::vector<GridCell> cells;
  for (const Json& line : Json::parse(file)) {
    GridCell cell;
    cell.preset = cat("qwen3-", line["model"].get<std::string>());
    cell.fused = line["form"] == "fused";
    cell.ranks = line["ranks"].get<int32_t>();
    cell.standard = line["cost"] == "standard";
    // All decimals of the file, rounded up.
    cell.optimum = line["optimum_over_mean"].get<double>() + 0.000005;
    if (std::find(presets.begin(), presets.end(), cell.preset) ==
        presets.end()) {
      continue;
    }
    for (int32_t tp : tp_sizes(cell.ranks)) {
      cell.tp = tp;
      cells.push_back(cell);
    }
  }
  return cells;
}

inline const Model& grid_model(const GridCell& cell) {
  static std::map<std::pair<std::string, bool>, Model> known;
  const auto [it, fresh] = known.try_emplace({cell.preset, cell.fused});
  if (fresh) it->second = read_model(cell.preset, {.fused = cell.fused});
  return it->second;
}

// Costs as the data file counts them, with m the shorter side.
inline double newton_schulz(const Tensor& t, bool standard) {
  const auto m = static_cast<double>(std::min(t.rows(), t.cols()));
  const auto n = static_cast<double>(std::max(t.rows(), t.cols()));
  if (standard) return 5 * (4 * m * m * n + 2 * m * m * m);
  return std::min(15 * m * m * n + 5 * m * m * m,
                  6 * m * m * n + 14 * m * m * m);
}

inline std::vector<double> costs_of(const GridCell& cell) {
  std::vector<double> costs;
  for (const Tensor& t : grid_model(cell).tensors) {
    if (t.matrix_rule) costs.push_back(newton_schulz(t, cell.standard));
  }
  return costs;
}

inline double mean_load(const GridCell& cell) {
  double sum = 0;
  for (double cost : costs_of(cell)) sum += cost;
  return sum / cell.ranks;
}

// The largest load of dealing the largest first to the least loaded rank.
inline double longest_first(std::vector<double> sizes, size_t ranks) {
  std::sort(sizes.rbegin(), sizes.rend());
  std::priority_queue<double, std::vector<double>, std::greater<>> loads;
  for (size_t r = 0; r < ranks; ++r) loads.push(0);
  double most = 0;
  for (double size : sizes) {
    const double load = loads.top() + size;
    loads.pop();
    loads.push(load);
    most = std::max(most, load);
  }
  return most;
}

inline double longest_first(const GridCell& cell) {
  return longest_first(costs_of(cell), static_cast<size_t>(cell.ranks));
}

inline Plan grid_plan(const GridCell& cell, std::optional<double> alpha) {
  const Model& model = grid_model(cell);
  PlanOptions options;
  options.alpha = alpha;
  options.splits = parse_splits(model.num_experts > 0 ? "expert" : "none");
  return plan_of(
      model, cat("dp=", cell.ranks / cell.tp, ",tp=", cell.tp), options,
      {"muon", {{"newton_schulz", cell.standard ? "standard" : "auto"}}});
}

// The largest load over all ranks.
inline double grid_makespan(const GridCell& cell, const Plan& plan) {
  std::map<std::pair<int32_t, int32_t>, double> loads;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const auto t = static_cast<size_t>(plan.matrices[m].tensor);
    loads[{plan.parts[0].home[t], plan.parts[0].owners[m].front()}] +=
        newton_schulz(plan.model.tensors[t], cell.standard);
  }
  double most = 0;
  for (const auto& [rank, load] : loads) most = std::max(most, load);
  return most;
}

// Bytes of master weights and states: 4 + 4 of an element under Muon, 4 + 8
// under AdamW. AdamW tensors suffice if whole matrices, dealt to homes largest
// first, stay below the level that all bytes reach when spread evenly.
inline bool adamw_suffices(const GridCell& cell) {
  const auto homes = static_cast<size_t>(cell.ranks / cell.tp);
  std::vector<double> matrices;
  double bytes = 0;
  for (const Tensor& tensor : grid_model(cell).tensors) {
    const double elements = static_cast<double>(tensor.elements()) /
                            (tensor.cut == Cut::kNone ? 1 : cell.tp);
    bytes += elements * (tensor.matrix_rule ? 8 : 12);
    if (tensor.matrix_rule) matrices.push_back(elements * 8);
  }
  return longest_first(matrices, homes) <= bytes / static_cast<double>(homes);
}

// Bytes unbounded: near the optimum, and no worse than plain longest first.
inline void expect_near_optimum(const GridCell& cell) {
  SCOPED_TRACE(to_string(cell));
  const Plan plan = grid_plan(cell, 1);
  const double makespan = grid_makespan(cell, plan);
  EXPECT_LE(makespan, 1.005 * cell.optimum * mean_load(cell));
  EXPECT_LE(makespan, longest_first(cell));
  EXPECT_EQ(plan.summary.makespan.value(), static_cast<int64_t>(makespan));
  // The bound is true: nothing that is known to be reached lies below it.
  EXPECT_LE(static_cast<double>(plan.summary.bound.value()),
            cell.optimum * mean_load(cell));
}

inline void expect_near_optimum_with_bytes_bounded(const GridCell& cell) {
  SCOPED_TRACE(to_string(cell));
  const Plan plan = grid_plan(cell, {});
  // Larger buckets, which the planner makes of very uneven ones, leave less
  // choice.
  const bool is_usual = plan.options.bucket_elements == kUsualBucketElements;
  EXPECT_LE(grid_makespan(cell, plan),
            (is_usual ? 1.02 : 1.05) * cell.optimum * mean_load(cell));
}

inline void expect_no_worse_than_longest_first(GridCell cell) {
  for (bool standard : {false, true}) {
    cell.standard = standard;
    SCOPED_TRACE(to_string(cell));
    EXPECT_LE(grid_makespan(cell, grid_plan(cell, 1)), longest_first(cell));
  }
}

inline bool has_nine_matrices_per_rank(const GridCell& cell) {
  return costs_of(cell).size() >= 9 * static_cast<size_t>(cell.ranks);
}

inline void expect_near_bound(const GridCell& cell,
                              std::optional<double> alpha) {
  SCOPED_TRACE(to_string(cell));
  const Plan plan = grid_plan(cell, alpha);
  const auto bound = static_cast<double>(plan.summary.bound.value());
  EXPECT_LE(grid_makespan(cell, plan), 1.02 * bound);
  EXPECT_GE(bound, mean_load(cell) * (1 - 1e-12));
}

// False, and nothing is expected, where AdamW tensors do not suffice.
inline bool expect_level_memory(const GridCell& cell) {
  if (!adamw_suffices(cell)) return false;
  const Plan plan = grid_plan(cell, {});
  EXPECT_LE(static_cast<double>(plan.summary.memory_per_rank_max.value()),
            1.005 * plan.summary.memory_per_rank_mean)
      << to_string(cell);
  return true;
}

}  // namespace canzona::plan

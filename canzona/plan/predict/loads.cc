#include "canzona/plan/predict/loads.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "canzona/plan/coordinates.h"
#include "canzona/plan/makespan/bound.h"

namespace canzona::plan {

const StateBytes& StateBytesTable::of(MatrixShape shape) {
  const auto it = known_.find(shape);
  if (it != known_.end()) return it->second;
  StateBytes bytes;
  for (const StateFact& state : rule_.states(shape)) {
    int64_t& sum =
        state.lives == Lives::kWithShard ? bytes.with_shard : bytes.with_owner;
    sum = checked_add(sum, state.bytes().value(), "bytes of states");
  }
  return known_.emplace(shape, bytes).first->second;
}

int32_t counted_rank(const Mesh& mesh, int32_t rank) {
  const Coordinates at = coordinates_of(mesh, rank);
  return mesh.rank(at.stage, mesh.home_of_expert(0, at.ep), at.t);
}

std::vector<int64_t> steps_of(int32_t period, int32_t phases) {
  if (period <= 1) return {1};
  std::vector<int64_t> steps(static_cast<size_t>(phases) + 1, 1);
  steps[0] = period - phases;
  return steps;
}

std::vector<int64_t> load_by_step(const MatrixCost& cost, int32_t phase,
                                  int32_t period, int32_t phases) {
  const int64_t every = cost.every_step.value();
  if (period <= 1) return {every + cost.refresh.value()};
  std::vector<int64_t> load(static_cast<size_t>(phases) + 1, every);
  load[static_cast<size_t>(phase) + 1] += cost.refresh.value();
  return load;
}

namespace {

// Returns the matrices of one stage; those that are alike are counted together.
std::vector<ItemClass> classes_of_stage(const PlanPart& part, int32_t stage) {
  std::map<std::tuple<int64_t, int64_t, int32_t, int32_t>, int64_t> alike;
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    const Buffer& buffer = part.buffer_of(part.matrices[m].tensor);
    const auto& [every_step, refresh] = part.costs[m];
    if (buffer.stage == stage)
      ++alike[{every_step.value(), refresh.value(), part.phase[m], buffer.ep}];
  }
  std::map<std::vector<int64_t>, int64_t> counts;
  for (const auto& [kind, count] : alike) {
    const auto& [every_step, refresh, phase, ep] = kind;
    std::vector<int64_t> key = load_by_step({Ticks(every_step), Ticks(refresh)},
                                            phase, part.period, part.phases);
    key.push_back(ep);
    counts[key] += count;
  }
  std::vector<ItemClass> classes;
  for (const auto& [key, count] : counts) {
    ItemClass c;
    c.load.assign(key.begin(), key.end() - 1);
    c.zone = static_cast<int32_t>(key.back());
    c.count = count;
    classes.push_back(std::move(c));
  }
  return classes;
}

// Returns the ep coordinate of each rank of a stage.
std::vector<int32_t> zones_of(const Mesh& mesh) {
  std::vector<int32_t> zones;
  for (int32_t h = 0; h < mesh.homes(); ++h) {
    zones.insert(zones.end(), static_cast<size_t>(mesh.tp),
                 coordinates_of(mesh, mesh.rank(0, h, 0)).ep);
  }
  return zones;
}

// Returns the matrices of all parts on the ranks of the whole plan. A replica's
// matrices may be on any of them, so that the bound holds for every plan.
std::vector<ItemClass> classes_of_parts(const Plan& whole, int32_t stage) {
  std::vector<ItemClass> all;
  for (size_t i = 0; i < whole.parts.size(); ++i) {
    const PlanPart& part = whole.parts[i];
    for (ItemClass& c : classes_of_stage(part, stage)) {
      c.zone = i == 0 ? kAnyZone : static_cast<int32_t>(i) - 1;
      c.count *= part.num_replicas();
      all.push_back(std::move(c));
    }
  }
  return all;
}

// `classes` returns the matrices of a stage.
template <class ClassesOf>
Ticks bound_over_stages(const SettledRequest& plan, const Mesh& grid,
                        Ticks upper, ClassesOf classes) {
  const std::vector<int64_t> steps = steps_of(plan.period, plan.phases);
  const std::vector<int32_t> zones = zones_of(grid);
  Ticks bound;
  for (int32_t stage = 0; stage < grid.pp; ++stage)
    bound = std::max(bound, Ticks(objective_bound(classes(stage), steps, zones,
                                                  upper.value())));
  return bound;
}

}  // namespace

Ticks makespan_bound(const PlanPart& part, Ticks upper) {
  return bound_over_stages(part, part.grid, upper, [&](int32_t stage) {
    return classes_of_stage(part, stage);
  });
}

// The bound is the largest of each part's and of all parts together.
Ticks makespan_bound(const Plan& plan, Ticks upper) {
  Ticks bound;
  for (const PlanPart& part : plan.parts)
    bound = std::max(bound, makespan_bound(part, upper));
  if (!cuts_experts_apart(plan)) return bound;
  return std::max(bound,
                  bound_over_stages(plan, plan.mesh, upper, [&](int32_t stage) {
                    return classes_of_parts(plan, stage);
                  }));
}

}  // namespace canzona::plan

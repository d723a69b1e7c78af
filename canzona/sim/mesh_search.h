// The search behind `canzona plan --mesh auto`: of all layouts of a number of
// ranks (mesh_space.h), the one with the shortest predicted iteration under the
// memory cap.
//
//   MeshQuestion question{.model = &model, .ranks = 64, .rule = rule.get(),
//                         .options = options, .work = work,
//                         .global_batch = 4 << 20};
//   MeshAnswer answer = search_meshes(question);
//   if (answer.is_found()) show(answer.best());
//   for (const RankedMesh& row : answer.kinds) show(row);   // best of each
//   kind
//
// Layouts are ordered by a lower bound on their iteration, and planned and
// simulated in this order until the bound of the next one is above the best
// time: no layout that is left out can be better. The result is deterministic;
// it does not depend on threads. Every number is predicted.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "canzona/base/dtype.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/options.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/rules/facts.h"
#include "canzona/shapes/tensor.h"
#include "canzona/sim/activations.h"
#include "canzona/sim/mesh_space.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/sim/workload.h"

namespace canzona::sim {

// Calls work(0) … work(count - 1), in any order and on any threads, and returns
// when all have returned. How it is done changes no result.
using EachOf =
    std::function<void(size_t count, const std::function<void(size_t)>& work)>;
void one_by_one(size_t count, const std::function<void(size_t)>& work);

// Says what has been done so far.
struct MeshProgress {
  int64_t planned = 0;
  double best_seconds = 0;   // 0: none yet
  double bound_seconds = 0;  // of the layouts that are left
};

// Everything but the layout. Pointers must outlive the search.
struct MeshQuestion {
  const Model* model = nullptr;  // routed
  int32_t ranks = 1;
  const RuleFacts* rule = nullptr;
  // Links, ranks per node, memory cap, strategy, types; sizes of ZeRO and reach
  // are searched.
  PlanOptions options = {};
  const CostTable* cost_table = nullptr;
  // What a tick is worth here, unless it is the plan's own.
  std::optional<CostBasis> cost_basis = {};
  // Rates, length, width, experts per token, levels, spread, overlap; tokens,
  // micro-batches and recomputation are searched.
  Workload work = {};
  // The type of activations; without, they are not counted against the cap.
  std::optional<DType> activations = DType::kBf16;
  // Those of every layout, if they were counted elsewhere.
  std::optional<int64_t> activation_bytes = {};
  bool experts_assumed = false;
  DType gradients = DType::kFp32;  // at rest
  int64_t global_batch = 0;        // tokens of an iteration on all ranks
  MeshLimits limits = {};
  // A search that plans this many layouts ends without a proof; 0: as many as
  // take seconds.
  int64_t most_planned = 0;
  EachOf each = one_by_one;  // how to run in parallel
  std::function<void(const MeshProgress&)> progress = {};  // may be empty
};

// An iteration by part; the sum is its seconds.
struct MeshTimeParts {
  double compute = 0;           // without the next three
  double tp_sums = 0;           // compute waits for each of them
  double expert_exchanges = 0;  // likewise
  double stage_sends = 0;       // likewise
  double gathers = 0;           // waited for parameters
  double scatters = 0;          // waited for slots and scatters of gradients
  double sums = 0;              // waited for sums before the step
  double bubble = 0;
  double step = 0;

  double exposed() const {
    return tp_sums + expert_exchanges + stage_sends + gathers + scatters + sums;
  }
  double total() const { return compute + exposed() + bubble + step; }
};

// A layout that was planned and simulated.
struct WeighedMesh {
  MeshChoice choice;
  IterationTime time = {};
  MeshTimeParts parts = {};
  RankMemory memory = {};   // of the fullest rank, by kind
  int64_t activations = 0;  // beside it
  int64_t slow_bytes = 0;   // sent between nodes per iteration by the rank
  int64_t fast_bytes = 0;   // that sends most; inside nodes by the same
  double tokens_per_second = 0;
  double share_of_peak = 0;  // flops of the model / flops of the cards
  double bound_seconds = 0;  // what the iteration takes at least
  int32_t stage = 0;         // of the pipeline, the slowest
  // How many times its even share of a bucket a home keeps, in the worst one.
  double bucket_unevenness = 1;
  bool fits = true;  // under the cap

  double seconds() const { return time.seconds; }
  double step_seconds() const { return time.step_seconds; }
  int64_t memory_bytes() const { return memory.total().value() + activations; }
};

enum class MeshVerdict { kFits, kOverCap, kRefused };

// The best layout of a kind, or one that was asked for.
struct RankedMesh {
  LayoutKind kind = LayoutKind::kZero1;
  WeighedMesh weighed = {};
  // Why it loses to the best: "11 % slower: bubble 8 %, 3 % exposed"; or why it
  // was taken, or cannot be.
  std::string reason = {};
  // False if layouts of this kind were left with a bound below its time.
  bool proven = true;
  std::string strategy = {};  // if several were tried
  MeshVerdict verdict = MeshVerdict::kFits;
  // More than 0: it was not planned, because it needs at least this much.
  int64_t least_bytes = 0;

  bool fits() const { return verdict == MeshVerdict::kFits; }
  bool is_planned() const {
    return verdict != MeshVerdict::kRefused && least_bytes == 0;
  }
  int64_t memory_bytes() const {
    return is_planned() ? weighed.memory_bytes() : least_bytes;
  }
};

struct MeshCounts {
  int64_t in_space = 0;   // layouts
  int64_t refused = 0;    // meshes, by divisibility or nodes
  int64_t over_cap = 0;   // dropped: their memory bound is above the cap
  int64_t too_slow = 0;   // dropped: their time bound is above the best
  int64_t planned = 0;    // plans made
  int64_t simulated = 0;  // iterations simulated
  int64_t left = 0;       // undecided when the limit on plans ended the search
};

// The layout that is nearest if nothing fits.
struct NearestMesh {
  MeshChoice choice = {};
  int64_t cap_bytes = 0;
  int64_t lacks_bytes = 0;  // at least
  // The cheapest change that may fit: "recomputing activations",
  // "micro-batches of 4096 tokens", "128 ranks"; "" if none is known.
  std::string cure = {};
};

struct MeshAnswer {
  // The best of each kind that has a layout that fits, fastest first; or those
  // that were asked for: then come those over the cap, and those refused.
  std::vector<RankedMesh> kinds;
  MeshCounts counts = {};
  // True if no layout that was left out can be better than the best one.
  bool proven = true;
  // If not: how far the least bound of what is left is below the best time,
  // as a fraction of it.
  double gap = 0;
  std::optional<NearestMesh> nearest = {};  // if nothing fits
  std::string refusal = {};  // why layouts could not be planned, if any
  std::vector<std::string> not_searched = {};

  bool is_found() const { return !kinds.empty() && kinds.front().fits(); }
  const WeighedMesh& best() const { return kinds.front().weighed; }
  // One line: what was chosen or what is missing, and what was counted.
  std::string summary() const;
};

// Sets the reasons of all but those that are refused.
void give_reasons(MeshAnswer& answer, int64_t memory_cap_bytes);

// Throws UsageError if no mesh is in the space, or the question makes no sense.
MeshAnswer search_meshes(const MeshQuestion& question);

// Times that differ by less than this share count as equal where the mesh is
// fixed.
inline constexpr double kEqualTimes = 1e-9;

// The cheapest change of a question to which nothing fits after which something
// does; `lacks` is what the nearest layout lacks.
std::string cure_of(const MeshQuestion& question, int64_t lacks);

// Plans and simulates a single layout, whether it fits or not: under changed
// links, memory or batch. Throws UsageError if it cannot be planned.
WeighedMesh weigh_mesh(const MeshQuestion& question, const MeshChoice& choice);

// The request, the memory terms and the work of a layout, with which the rest
// of the program plans and predicts the same.
PlanOptions options_of(const MeshQuestion& question, const MeshChoice& choice);
ActivationLoad activation_load(const MeshQuestion& question,
                               const MeshChoice& choice);
// With an outline (mesh_bounds.h) it stands for the model.
MemoryTerms terms_of(const MeshQuestion& question, const MeshChoice& choice,
                     const Model* outline = nullptr);
Workload work_of(const MeshQuestion& question, const MeshChoice& choice);

}  // namespace canzona::sim

// Compares sizes of hierarchical ZeRO for `--zero auto` and `compare --zero`:
// every choice is planned and its iteration predicted.
//
//   ZeroComparison all = weigh_sizes(request, work, {sizes, …});
//   if (all.search.is_found()) take_best(all, request.options);
//
// All choices are predicted for the same work, so that the shortest iteration
// has the most tokens per second. Choices that cannot fit are not planned.
//
// Memory that a rank needs beside its plan is not part of any plan: the terms
// (activations.h) say what is compared with the request's cap. All functions
// are pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/make_plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/zero.h"
#include "canzona/sim/activations.h"
#include "canzona/sim/workload.h"

namespace canzona {

// Counts the bytes that travel in one iteration of a plan, by operation and
// link class.
//
//   PurposeBytes bytes = zero_bytes(plan, ranks[r], r);
//   of(bytes, Purpose::kGatherModule).sent_inter   // in a micro-batch
//
// Gathers and scatters of modules (plan/zero.h) happen in every micro-batch,
// the rest once per step. All functions are pure.

// Returns a rank's bytes: gathers of all modules, forward and backward, and
// scatters, per micro-batch; the rest per step.
PurposeBytes zero_bytes(const Plan& plan, const RankCost& cost, int32_t rank);

// The same as rows, in chronological order.
struct ZeroOperation {
  const char* name;  // "gather parameters"
  const char* key;   // "gather", as in JSON
  const char* when;  // "micro-batch" or "step"
  std::vector<Purpose> purposes;
  WireBytes of(const PurposeBytes& bytes) const;
};
const std::vector<ZeroOperation>& zero_operations();

// True if a group of z consecutive data-parallel ranks spans several nodes;
// these are the experts' groups if `part` has experts.
bool crosses_nodes(const PlanPart& part, int32_t z);
// True if the groups of this size do so in any part of the plan.
bool crosses_nodes(const Plan& plan, int32_t ZeroSizes::* z);

// The search behind `--zero auto`: every choice of sizes is evaluated, those
// over the memory cap are dropped, the fastest is taken, and each of the others
// gets a reason why not.
//
//   ZeroSearch search = rank_choices(
//       {{{8, 4, 4}, "balanced"}, …}, memory_cap_bytes,
//       [&](const ZeroChoice& choice) { return weigh(choice); });
//   if (search.is_found()) use(search.ranking.front().choice);
//
// Choices whose times are within 1e-9 of each other are ordered by fewer bytes
// over slow links, then less memory, then smaller sizes, then the order of the
// choices. The result is deterministic.

struct ZeroChoice {
  ZeroSizes sizes;
  std::string strategy = {};
  ZeroSizes experts = {};  // z1 = 0: on the ranks of the dense tensors
  friend bool operator==(const ZeroChoice&, const ZeroChoice&) = default;
};

// The cost of a choice on the rank where it is highest.
struct ZeroWeight {
  std::string refusal = {};  // not empty: why it is impossible
  // True if it was not planned, because it needs at least this much memory,
  // which is too much; only memory is known.
  bool is_dropped = false;
  int64_t memory_bytes = 0;
  int64_t slow_bytes = 0;  // sent between nodes per iteration
  int64_t fast_bytes = 0;  // likewise inside nodes
  double seconds = 0;      // per iteration
  double step_seconds = 0;
  // Shown beside them: memory of the fullest rank by kind; sizes of experts as
  // planned.
  RankMemory memory = {};
  ZeroSizes experts = {};
  int32_t replicas = 1;
  // How many times its even share of a bucket a home keeps, in the worst one.
  double bucket_unevenness = 1;
  bool z2_crosses_nodes = false;
  bool z3_crosses_nodes = false;
};

// Times that differ by less than this share count as equal.
inline constexpr double kEqualTimes = 1e-9;

enum class ZeroVerdict { kFits, kOverCap, kRefused };

struct RankedZero {
  ZeroChoice choice;
  ZeroWeight weight = {};
  ZeroVerdict verdict = ZeroVerdict::kFits;
  std::string reason = {};  // why it was taken, or not

  bool fits() const { return verdict == ZeroVerdict::kFits; }
  bool is_planned() const {
    return verdict != ZeroVerdict::kRefused && !weight.is_dropped;
  }
};

struct ZeroSearch {
  // Choices that fit, best first; then those that do not, closest to the cap
  // first; then those that cannot be planned.
  std::vector<RankedZero> ranking;
  int64_t memory_cap_bytes = 0;  // 0: none
  std::string cure = {};         // what makes more choices fit

  bool is_found() const { return !ranking.empty() && ranking.front().fits(); }
  // Describes the choice, or the closest one, what it lacks and what to do.
  std::string summary() const;
};

// Calls work(0) … work(count - 1), in any order and on any threads, and returns
// when all have returned. How it is done changes no result.
using EachOf =
    std::function<void(size_t count, const std::function<void(size_t)>& work)>;
void one_by_one(size_t count, const std::function<void(size_t)>& work);

ZeroSearch rank_choices(
    const std::vector<ZeroChoice>& choices, int64_t memory_cap_bytes,
    const std::function<ZeroWeight(const ZeroChoice&)>& weigh,
    const EachOf& each = one_by_one);

// Explains why a choice was taken or not.

// "states over 64, gradients and parameters over 8"; what is not cut is whole.
std::string in_words(const ZeroSizes& sizes);

// "z1=8,z2=4,z3=4", with the strategy if several were tried.
std::string choice_name(const ZeroChoice& choice, const ZeroSearch& search);

// "needs 1.20 GiB more than the cap of 2.00 GiB", "3.1 % slower than
// z1=8,z2=4,z3=4: 2.1x its slow bytes". The ranking must already be sorted.
std::string reason_for(const RankedZero& ranked, const ZeroSearch& search);

// The same without the name of the choice that it is compared with, for tables
// that show it.
std::string brief_reason(const RankedZero& ranked, const ZeroSearch& search);

struct ZeroComparison {
  std::string model;
  Mesh mesh;
  std::string rule;
  std::string strategy;             // all of them, joined
  bool several_strategies = false;  // rows must name theirs
  PlanOptions options = {};         // of the request
  Workload work = {};
  std::string rates = {};  // the source of times, if not the options
  std::vector<std::string> gaps = {};     // known_gaps() of the predictions
  int64_t beside_bytes = 0;               // per rank, beside its plan
  std::optional<MemoryTerms> terms = {};  // if memory was counted in terms
  ZeroSearch search = {};

  int64_t total(const RankedZero& row) const {
    return row.weight.is_dropped
               ? row.weight.memory_bytes
               : row.weight.memory.total().value() + beside_bytes;
  }
  // Tokens of an iteration, the same for all rows; 0 if compute is not counted.
  double global_batch() const;
  double tokens_per_second(const RankedZero& row) const {
    return row.weight.seconds > 0 ? global_batch() / row.weight.seconds : 0;
  }
  // True if any choice cuts experts separately.
  bool has_experts() const;
};

// The search tries all combinations. Without experts or strategies, the
// request's are used.
struct ZeroChoices {
  std::vector<ZeroSizes> sizes;
  std::vector<ZeroSizes> experts = {};
  std::vector<std::string> strategies = {};
};

// Choices that cannot be planned are kept, with the reason. `cost` is what a
// tick is worth here, unless it is the plan's own.
ZeroComparison weigh_sizes(const PlanRequest& request, const Workload& work,
                           const ZeroChoices& choices,
                           const CostBasis* cost = nullptr,
                           const MemoryTerms* terms = nullptr,
                           const EachOf& each = one_by_one);

// What `auto` searches: all sizes of dense tensors, all of experts, or first
// the former and then, with the best of them, the latter. Sizes that are not
// searched are the request's.
struct SearchedSizes {
  bool dense = false;
  bool experts = false;
  std::vector<std::string> strategies = {};
  explicit operator bool() const { return dense || experts; }
};
ZeroComparison search_sizes(const PlanRequest& request, const Workload& work,
                            const SearchedSizes& what,
                            const CostBasis* cost = nullptr,
                            const MemoryTerms* terms = nullptr,
                            const EachOf& each = one_by_one);

// Copies the best row into `options`; throws UsageError if nothing fits.
void take_best(const ZeroComparison& all, PlanOptions& options);

}  // namespace canzona

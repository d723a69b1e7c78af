// Compares sizes of hierarchical ZeRO for `--zero auto` and `compare --zero`:
// every choice is planned and its iteration predicted.
//
//   ZeroComparison all = weigh_sizes(request, work, {sizes, …});
//   if (all.search.is_found()) take_best(all, request.options);
//
// Memory that a rank needs beside its plan is not part of any plan: the terms
// (memory_terms.h) say what is compared with the request's cap. All functions
// are pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/make_plan.h"
#include "canzona/sim/memory_terms.h"
#include "canzona/sim/search.h"
#include "canzona/sim/workload.h"

namespace canzona {

struct ZeroComparison {
  std::string model;
  Mesh mesh;
  std::string rule;
  std::string strategy;             // all of them, joined
  bool several_strategies = false;  // rows must name theirs
  PlanOptions options = {};         // of the request
  Workload work = {};
  std::string rates = {};    // the source of times, if not the options
  int64_t beside_bytes = 0;  // per rank, beside its plan
  std::optional<MemoryTerms> terms = {};  // if memory was counted in terms
  ZeroSearch search = {};

  int64_t total(const RankedZero& row) const {
    return row.weight.memory.total().value() + beside_bytes;
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
                           const MemoryTerms* terms = nullptr);

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
                            const MemoryTerms* terms = nullptr);

// Copies the best row into `options`; throws UsageError if nothing fits.
void take_best(const ZeroComparison& all, PlanOptions& options);

}  // namespace canzona

// Sizes of hierarchical ZeRO weighed against each other, for `--zero auto` and
// `compare --zero`: every choice planned and its iteration predicted.
//
//   ZeroComparison all = weigh_sizes(request, work, {sizes, …});
//   if (all.search.is_found()) take_best(all, request.options);
//
// Memory that a rank needs beside its plan is part of no plan: what is compared
// with the request's cap is what the terms say (memory_terms.h). Pure.
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
  bool several_strategies = false;  // rows are to name theirs
  PlanOptions options = {};         // of the request
  Workload work = {};
  std::string rates = {};    // where times come from, if not from the options
  int64_t beside_bytes = 0;  // that a rank needs beside its plan
  std::optional<MemoryTerms> terms = {};  // where memory was counted in such
  ZeroSearch search = {};

  int64_t total(const RankedZero& row) const {
    return row.weight.memory.total().value() + beside_bytes;
  }
  // True if any choice cuts experts by themselves.
  bool has_experts() const;
};

// The search tries everything with everything. None of experts or of
// strategies: as the request says.
struct ZeroChoices {
  std::vector<ZeroSizes> sizes;
  std::vector<ZeroSizes> experts = {};
  std::vector<std::string> strategies = {};
};

// Choices that cannot be planned stay in, with the reason. `cost`: what a tick
// is worth here, unless it is the plan's own.
ZeroComparison weigh_sizes(const PlanRequest& request, const Workload& work,
                           const ZeroChoices& choices,
                           const CostBasis* cost = nullptr,
                           const MemoryTerms* terms = nullptr);

// `auto`: all sizes of dense tensors, all of experts, or first the ones and
// then, beside the best of them, the others. Sizes that are not chosen are the
// request's.
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

// Sizes of hierarchical ZeRO weighed against each other, for `--zero auto` and
// `compare --zero`.
//
//   Workload work = read_workload(arguments, input.model);
//   ZeroComparison all = weigh_sizes(request, work, {sizes, …});
//   if (all.has_fit()) use(all.rows.front().sizes);
//
// Memory that a rank needs beside its plan is part of no plan: what is compared
// with the request's cap is what the terms say (memory_terms.h).
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/make_plan.h"
#include "canzona/report/compare_zero.h"
#include "canzona/sim/memory_terms.h"
#include "canzona/sim/workload.h"
#include "cli/plan_arguments.h"

namespace canzona::cli {

// "all", or sizes joined by ';' (names by ',' too). UsageError for sizes that
// do not divide.
std::vector<ZeroSizes> read_sizes(const std::string& text, int32_t homes,
                                  const char* option = "--zero");

// What an iteration is, as the options say; nominal where they do not.
Workload read_workload(const PlanArguments& arguments, const Model& model);

// What is counted against the cap of the options.
MemoryTerms read_memory_terms(const PlanArguments& arguments,
                              const Model& model, const Mesh& mesh,
                              const PlanOptions& options);

// What is tried, everything with everything. None of experts or of strategies:
// as the request says.
struct ZeroChoices {
  std::vector<ZeroSizes> sizes;
  std::vector<ZeroSizes> experts = {};
  std::vector<std::string> strategies = {};
};

// Every choice planned and its iteration predicted, the best first. What cannot
// be planned stays in, with the reason. `cost`: what a tick is worth here,
// unless it is the plan's own.
ZeroComparison weigh_sizes(const PlanRequest& request, const Workload& work,
                           const ZeroChoices& choices,
                           const CostBasis* cost = nullptr,
                           const MemoryTerms* terms = nullptr);

// `auto`: all sizes of dense tensors, all of experts, or first the ones and
// then, beside the best of them, the others. What is not chosen is the
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

// The first. UsageError with the verdict if it does not fit.
void take_best(const ZeroComparison& all, PlanOptions& options);

}  // namespace canzona::cli

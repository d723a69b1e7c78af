// Strategies side by side, as a document and as a page.
//
//   Comparison all{.model = "qwen3-32b", .mesh = mesh, .strategies = …};
//   Document view = compare_view(all);
//   std::string page = compare_html(all);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/report/document.h"
#include "canzona/report/shown_plan.h"
#include "canzona/sim/zero_ranking.h"

namespace canzona::report {

// A strategy that cannot plan the input has an error instead of a plan.
struct ComparedStrategy {
  std::string name;
  std::optional<ReportPlan> shown;
  std::string error;
};

struct Comparison {
  std::string model;
  Mesh mesh;
  std::vector<ComparedStrategy> strategies;

  // The first strategy that has a plan; nullptr if none has.
  const ReportPlan* first() const;
};

// docs/compare.md describes the members; `complete` adds those that a page
// leaves out. The comparison must outlive the document.
Document compare_view(const Comparison& comparison, bool complete = true);

// Returns the page that draws it (page.h): all strategies, and two in detail:
// `before`, the plan of start_offset or else the first plan, and `after`, the
// plan of balanced or else the last. The same plans give the same bytes: the
// page holds no date and no measured time. Throws UsageError without a plan.
std::string compare_html(const Comparison& comparison);

// Sizes of hierarchical ZeRO side by side: memory against the cap, bytes by
// link class, predicted iteration, and why one is taken and the others not.
//
//   ZeroRanking all = rank_sizes(request, work, choices);
//   Document view = zero_comparison_view(all);
//   std::string page = zero_comparison_html(all);
//
// Rows are in order of preference, the best first. Plain values.

// docs/compare.md describes the members.
Document zero_comparison_view(const ZeroRanking& all);
// Only the first table and the verdict.
Document zero_ranking_view(const ZeroRanking& all);
// Returns the page that draws it (page.h).
std::string zero_comparison_html(const ZeroRanking& all);

}  // namespace canzona::report

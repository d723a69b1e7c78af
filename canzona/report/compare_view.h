// Strategies side by side, on the terminal, as JSON and as a page.
//
//   Comparison all{.model = "qwen3-32b", .mesh = mesh, .strategies = …};
//   std::string text = compare_text(all, ink);
//   std::string json = compare_json(all);
//   std::string page = compare_html(all);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/report/terminal.h"
#include "canzona/report/view_parts.h"

namespace canzona {

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

std::string compare_text(const Comparison& comparison, const Ink& ink);

// Returns one object; docs/compare.md describes its members.
std::string compare_json(const Comparison& comparison);

// Returns the page that draws it (page.h): all strategies, and two in detail:
// `before`, the plan of start_offset or else the first plan, and `after`, the
// plan of balanced or else the last. The same plans give the same bytes: the
// page holds no date and no measured time. Throws UsageError without a plan.
std::string compare_html(const Comparison& comparison);

}  // namespace canzona

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

// One object; its members are described in docs/compare.md.
std::string compare_json(const Comparison& comparison);

// The page that draws it (page.h): all strategies, and in detail `before`, the
// plan of strategy start_offset or else the first, against `after`, the plan of
// strategy balanced or else the last. The same plans give the same bytes: no
// date, no measured time. UsageError without a plan.
std::string compare_html(const Comparison& comparison);

}  // namespace canzona

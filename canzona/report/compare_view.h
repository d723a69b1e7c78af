// Strategies side by side, on the terminal and as JSON.
//
//   Comparison all{.model = "qwen3-32b", .mesh = mesh, .strategies = …};
//   std::string text = compare_text(all, ink);
//   std::string json = compare_json(all);
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "canzona/report/report_plan.h"
#include "canzona/report/terminal.h"

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

}  // namespace canzona

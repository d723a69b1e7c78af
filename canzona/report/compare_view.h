// Strategies side by side, on the terminal, as JSON and as a page.
//
//   Comparison all{.model = "qwen3-32b", .mesh = mesh, .strategies = …};
//   std::string text = compare_text(all, ink);
//   std::string json = compare_json(all);
//   std::string page = compare_html(all);
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/terminal.h"
#include "canzona/sim/zero_search.h"

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

// Sizes of hierarchical ZeRO side by side: memory against the cap, bytes by
// link class, predicted iteration, and why one is taken and the others not.
//
//   ZeroComparison all = weigh_sizes(request, work, choices);
//   std::string text = zero_comparison_text(all, ink);
//   std::string json = zero_comparison_json(all);
//   std::string page = zero_comparison_html(all);
//
// Rows are in order of preference, the best first. Plain values.

std::string zero_comparison_text(const ZeroComparison& all, const Ink& ink);
// Returns only the first table and the verdict.
std::string zero_ranking_text(const ZeroComparison& all, const Ink& ink);
void write_zero_comparison(JsonWriter& out, const ZeroComparison& all);
// Returns one object; docs/compare.md describes its members.
std::string zero_comparison_json(const ZeroComparison& all);
// Returns the page that draws it (page.h).
std::string zero_comparison_html(const ZeroComparison& all);

// Describes an iteration: "4 micro-batches of 4096 tokens on …", and where its
// times come from.
std::string work_text(const ZeroComparison& all);
std::string rates_text(const ZeroComparison& all);

// A kind of memory of a row with its bytes, those that any row has.
struct ZeroMemory {
  std::string name;
  int64_t bytes = 0;
};
std::vector<ZeroMemory> memory_of(const ZeroComparison& all,
                                  const RankedZero& row);

}  // namespace canzona

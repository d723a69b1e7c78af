// Shows what hierarchical ZeRO (plan/zero.h) does in a plan: sizes, who
// exchanges with whom over which links, pools, and the cost of replicas. Plans
// in parts show dense tensors and experts separately; the experts of all ep
// coordinates are alike. Plans without slices and replicas show nothing.
#pragma once

#include <string>
#include <vector>

#include "canzona/base/json_writer.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/terminal.h"
#include "canzona/sim/zero_search.h"

namespace canzona {

bool has_zero(const Plan& plan);

// "once per node, on nodes of 8 ranks", or "direct: " and why: the outcome of
// automatic collectives.
std::string collectives_text(const Plan& plan);

// Lines of "name: text", for the terminal and the page alike.
struct ZeroFact {
  std::string name;
  std::string text;
};
struct ZeroFacts {
  std::string of;  // "dense tensors", "experts", or ""
  std::vector<ZeroFact> facts;
};
std::vector<ZeroFacts> zero_facts(const ReportPlan& shown);

// An operation, with the most bytes that any rank sends in one of them.
struct ZeroRow {
  const ZeroOperation* operation = nullptr;
  std::string over;  // "groups of 4", or "groups of 4 / 2" of experts
  int64_t intra = 0;
  int64_t inter = 0;
};
std::vector<ZeroRow> zero_rows(const ReportPlan& shown);
// The heading of `over`: "among", or "among, dense / experts".
std::string over_heading(const Plan& plan);

// Returns the facts with a title; "" if there is nothing to show.
std::string zero_text(const ReportPlan& shown, const Ink& ink);
// Writes the member "zero" of the open object, or nothing.
void write_zero(JsonWriter& out, const ReportPlan& shown);
void write_sizes(JsonWriter& out, const ZeroSizes& sizes);

}  // namespace canzona

// Hierarchical ZeRO: how tensors are cut, and what that sends.

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/zero_view.h"

namespace canzona {
namespace {

void put_rows(Html& out, const std::vector<ZeroRow>& rows) {
  double longest = 1;
  for (const ZeroRow& row : rows)
    longest = std::max(longest, static_cast<double>(row.intra + row.inter));
  const auto percent = [&](int64_t bytes) {
    return 100 * static_cast<double>(bytes) / longest;
  };
  for (const ZeroRow& row : rows) {
    out.put(
        "<tr><th>{}</th><td>{}</td><td>{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{}</td>",
        row.operation->name, row.operation->when, row.over,
        human_bytes(row.intra), human_bytes(row.inter));
    out.put(
        "<td class=\"bar\"><i class=\"k0\" style=\"width:{:.1f}%\"></i>"
        "<i class=\"k3\" style=\"width:{:.1f}%\"></i></td></tr>\n",
        percent(row.intra), percent(row.inter));
  }
}

}  // namespace

void add_zero(Html& out, const PageView& view) {
  const ReportPlan& shown = view.plan();
  if (!has_zero(shown.plan)) return;
  begin_section(out, "zero", "Hierarchical ZeRO");
  for (const ZeroFacts& kind : zero_facts(shown)) {
    if (!kind.of.empty()) out.put("<h3>{}</h3>", kind.of);
    out.add("<dl>\n");
    for (const ZeroFact& fact : kind.facts) put_fact(out, fact.name, fact.text);
    out.add("</dl>\n");
  }
  out.put(
      "<div class=\"scroll\"><table class=\"wire\"><thead><tr>"
      "<th>sent by the busiest rank</th><th>with each</th><th>{}</th>"
      "<th class=\"n\">within a node</th><th class=\"n\">between nodes</th>"
      "<th class=\"bar\"></th></tr></thead><tbody>\n",
      over_heading(shown.plan));
  put_rows(out, zero_rows(shown));
  out.add("</tbody></table></div>");
  put_legend(out, {{"k0", "within a node"}, {"k3", "between nodes"}});
  end_section(out);
}

}  // namespace canzona

// Bytes on the wire per collective and link class.

#include <algorithm>
#include <array>

#include "canzona/base/text.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/numbers.h"

namespace canzona {
namespace {

// When a collective runs and along which axis.
constexpr std::array<const char*, kNumCollectives> kWhen = {
    "backward, over dp", "backward, over dp", "step, over tp",
    "step, over tp",     "forward, over dp",  "step, over dp"};

// Sent bytes of one collective and link class over the ranks.
struct Sent {
  int64_t most = 0;
  double mean = 0;
};

Sent sent_of(const std::vector<RankCost>& ranks, size_t collective,
             int64_t WireBytes::*link) {
  Sent spread;
  double sum = 0;
  for (const RankCost& rank : ranks) {
    const int64_t bytes = rank.wire[collective].*link;
    spread.most = std::max(spread.most, bytes);
    sum += static_cast<double>(bytes);
  }
  if (!ranks.empty()) spread.mean = sum / static_cast<double>(ranks.size());
  return spread;
}

struct Row {
  size_t collective = 0;
  Sent intra;
  Sent inter;
};

std::vector<Row> rows_of(const ReportPlan& shown) {
  std::vector<Row> rows;
  for (size_t c = 0; c < kNumCollectives; ++c) {
    Row row{c, sent_of(shown.ranks, c, &WireBytes::sent_intra),
            sent_of(shown.ranks, c, &WireBytes::sent_inter)};
    if (row.intra.most > 0 || row.inter.most > 0) rows.push_back(row);
  }
  return rows;
}

double longest_bar(const PageView& view) {
  double most = 0;
  for (const ReportPlan& shown : view.plans) {
    for (const Row& row : rows_of(shown)) {
      most = std::max(most, static_cast<double>(row.intra.most) +
                                static_cast<double>(row.inter.most));
    }
  }
  return most;
}

void put_bar(Html& out, const Row& row, double longest) {
  const auto percent = [&](int64_t bytes) {
    return longest > 0 ? 100 * static_cast<double>(bytes) / longest : 0;
  };
  out.put(
      "<td class=\"bar\"><i class=\"k0\" style=\"width:{:.1f}%\"></i>"
      "<i class=\"k3\" style=\"width:{:.1f}%\"></i></td>",
      percent(row.intra.most), percent(row.inter.most));
}

void put_row(Html& out, const Row& row, double longest) {
  const auto put_bytes = [&](const Sent& spread) {
    out.put("<td class=\"n\">{}</td><td class=\"n\">{}</td>",
            human_bytes(spread.most),
            human_bytes(static_cast<int64_t>(spread.mean)));
  };
  out.put("<tr><th>{}</th><td>{}</td>",
          to_string(static_cast<Collective>(row.collective)),
          kWhen[row.collective]);
  put_bytes(row.intra);
  put_bytes(row.inter);
  put_bar(out, row, longest);
  out.add("</tr>\n");
}

void put_plan(Html& out, const PageView& view, const ReportPlan& shown,
              double longest) {
  out.add("<tbody>\n");
  if (view.several()) {
    out.put("<tr class=\"group\"><th colspan=\"7\">{}</th></tr>\n",
            shown.plan.options.strategy);
  }
  const std::vector<Row> rows = rows_of(shown);
  for (const Row& row : rows) put_row(out, row, longest);
  if (rows.empty()) {
    out.add("<tr><td colspan=\"7\">nothing is sent</td></tr>\n");
  }
  out.add("</tbody>\n");
}

}  // namespace

void add_wire(Html& out, const PageView& view) {
  begin_section(out, "wire", "Bytes on the wire");
  const Plan& plan = view.plan().plan;
  const Links& links = plan.options.links;
  out.put(
      "<p>Sent by a rank in one step. Links: {} within a node of {}, {} "
      "between nodes, latency {}{}.</p>",
      bandwidth_text(links.intra_bytes_per_second),
      counted(plan.options.ranks_per_node, "rank"),
      bandwidth_text(links.inter_bytes_per_second),
      human_seconds(links.latency_seconds),
      links.nominal ? " (nominal links)" : "");
  out.add(
      "<div class=\"scroll\"><table class=\"wire\"><thead>"
      "<tr><th rowspan=\"2\">collective</th><th rowspan=\"2\">when</th>"
      "<th colspan=\"2\" class=\"n\">within a node</th>"
      "<th colspan=\"2\" class=\"n\">between nodes</th>"
      "<th rowspan=\"2\" class=\"bar\">busiest rank</th></tr>"
      "<tr><th class=\"n\">busiest</th><th class=\"n\">mean</th>"
      "<th class=\"n\">busiest</th><th class=\"n\">mean</th></tr>"
      "</thead>\n");
  const double longest = longest_bar(view);
  for (const ReportPlan& shown : view.plans) {
    put_plan(out, view, shown, longest);
  }
  out.add("</table></div>");
  put_legend(out, {{"k0", "within a node"}, {"k3", "between nodes"}});
  end_section(out);
}

}  // namespace canzona

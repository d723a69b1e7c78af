// Draws what ranks hold and what they send.
#include <algorithm>
#include <array>

#include "canzona/base/text.h"
#include "canzona/report/html.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/numbers.h"
#include "canzona/report/zero_view.h"

namespace canzona {

// Memory per rank, stacked by kind.
namespace {

constexpr double kMemoryHeight = 220;
constexpr size_t kMaxBars = 64;
constexpr size_t kMaxMemoryPoints = 1024;
constexpr size_t kNumKinds = 6;
constexpr std::array<const char*, kNumKinds> kKinds = {
    "parameters", "gradients", "master", "states", "buffers", "pools"};

using Amounts = std::array<double, kNumKinds>;

Amounts amounts_of(const RankMemory& memory) {
  const auto value = [](Bytes bytes) {
    return static_cast<double>(bytes.value());
  };
  return {value(memory.parameters), value(memory.gradients),
          value(memory.master),     value(memory.states),
          value(memory.buffers),    value(memory.pools)};
}

// Pools are the last kind, and only slices have them.
size_t num_kinds(const PageView& view) {
  const bool pools = std::ranges::any_of(
      view.plans, [](const ReportPlan& p) { return has_pools(p.plan); });
  return pools ? kNumKinds : kNumKinds - 1;
}

double total(const Amounts& amounts) {
  double sum = 0;
  for (double one : amounts) sum += one;
  return sum;
}

// One column is a rank, or the fullest of an equal run of ranks.
struct MemoryColumn {
  int32_t rank = 0;
  Amounts amounts{};
};

std::vector<MemoryColumn> columns_of(const std::vector<RankCost>& ranks) {
  const size_t run = (ranks.size() + kMaxMemoryPoints - 1) / kMaxMemoryPoints;
  std::vector<MemoryColumn> columns;
  for (size_t first = 0; first < ranks.size(); first += run) {
    MemoryColumn best;
    for (size_t r = first; r < std::min(first + run, ranks.size()); ++r) {
      const Amounts amounts = amounts_of(ranks[r].memory);
      if (r == first || total(amounts) > total(best.amounts))
        best = {static_cast<int32_t>(r), amounts};
    }
    columns.push_back(best);
  }
  return columns;
}

std::string kind_title(const std::vector<RankCost>& ranks, size_t kind) {
  double low = amounts_of(ranks[0].memory)[kind];
  double high = low;
  for (const RankCost& rank : ranks) {
    low = std::min(low, amounts_of(rank.memory)[kind]);
    high = std::max(high, amounts_of(rank.memory)[kind]);
  }
  return cat(kKinds[kind], ": ", bytes_text(low), " to ", bytes_text(high),
             " per rank");
}

void draw_bars(Chart& chart, const Mesh& mesh,
               const std::vector<MemoryColumn>& columns) {
  const ChartSlots slots(chart, columns.size());
  for (size_t i = 0; i < columns.size(); ++i) {
    double below = 0;
    for (size_t kind = 0; kind < kNumKinds; ++kind) {
      const double amount = columns[i].amounts[kind];
      if (amount <= 0) continue;
      const double y = chart.y(below + amount);
      chart.svg().rect({slots.at(static_cast<double>(i) + 0.1), y,
                        slots.width * 0.8, chart.y(below) - y},
                       cat("run k", kind),
                       cat(rank_title(mesh, columns[i].rank), ", ",
                           kKinds[kind], ": ", bytes_text(amount), " of ",
                           bytes_text(total(columns[i].amounts))),
                       cat("rank:", columns[i].rank));
      below += amount;
    }
  }
}

// One area per kind: steps along its upper edge, back along its lower one.
std::string area_path(const Chart& chart, const ChartSlots& slots,
                      const std::vector<MemoryColumn>& columns, size_t kind) {
  const auto height = [&](size_t i, size_t kinds) {
    double sum = 0;
    for (size_t k = 0; k < kinds; ++k) sum += columns[i].amounts[k];
    return coordinate(chart.y(sum));
  };
  std::string d = cat("M", coordinate(slots.at(0)), " ", height(0, kind));
  for (size_t i = 0; i < columns.size(); ++i) {
    d += cat("V", height(i, kind + 1), "H",
             coordinate(slots.at(static_cast<double>(i + 1))));
  }
  for (size_t i = columns.size(); i-- > 0;) {
    d += cat("V", height(i, kind), "H",
             coordinate(slots.at(static_cast<double>(i))));
  }
  return d + "Z";
}

void draw_areas(Chart& chart, const std::vector<RankCost>& ranks,
                const std::vector<MemoryColumn>& columns) {
  const ChartSlots slots(chart, columns.size());
  for (size_t kind = 0; kind < kNumKinds; ++kind) {
    chart.svg().path(area_path(chart, slots, columns, kind), cat("k", kind),
                     kind_title(ranks, kind));
  }
}

void label_ranks(Chart& chart, const std::vector<MemoryColumn>& columns) {
  const ChartSlots slots(chart, columns.size());
  const auto apart = static_cast<size_t>(34 / slots.width);
  const size_t every = std::max({size_t{1}, columns.size() / 16, apart});
  for (size_t i = 0; i < columns.size(); i += every) {
    chart.svg().text(slots.at(static_cast<double>(i) + 0.5),
                     chart.bottom() + 16, "middle",
                     std::to_string(columns[i].rank));
  }
  chart.svg().text(chart.left() + chart.width() / 2, chart.bottom() + 31,
                   "middle dim", "rank");
}

std::string draw_memory(const ReportPlan& shown, double width) {
  const std::vector<MemoryColumn> columns = columns_of(shown.ranks);
  double most = 0;
  for (const MemoryColumn& column : columns)
    most = std::max(most, total(column.amounts));
  const auto cap = static_cast<double>(shown.plan.options.memory_cap_bytes);
  // A cap far above would flatten the rest; the headline names it anyway.
  const bool show_cap = cap > 0 && cap < 4 * most;
  const double top = std::max(most, show_cap ? cap : 0) * 1.06;
  Chart chart("Memory per rank, stacked by kind", kMemoryHeight, top, 38,
              width);
  chart.draw_axis(byte_ticks(top));
  if (columns.size() <= kMaxBars)
    draw_bars(chart, shown.plan.mesh, columns);
  else
    draw_areas(chart, shown.ranks, columns);
  std::vector<Reference> lines{
      {shown.plan.summary.memory_per_rank_mean,
       cat("mean ", bytes_text(shown.plan.summary.memory_per_rank_mean)),
       "mean-line"}};
  if (show_cap)
    lines.push_back({cap, cat("cap ", bytes_text(cap)), "makespan-line"});
  chart.draw_references(lines);
  label_ranks(chart, columns);
  return chart.take();
}

// Per strategy the fullest rank, by kind; for one plan the spread as well.
void put_table(Html& out, const PageView& view) {
  out.add("<div class=\"scroll\"><table><thead><tr><th>fullest rank of</th>");
  const size_t kinds = num_kinds(view);
  for (size_t kind = 0; kind < kinds; ++kind)
    out.put("<th class=\"n\">{}</th>", kKinds[kind]);
  out.add(
      "<th class=\"n\">sum</th><th class=\"n\">mean of all ranks</th>"
      "</tr></thead><tbody>\n");
  for (const ReportPlan& shown : view.plans) {
    const auto fullest =
        std::max_element(shown.ranks.begin(), shown.ranks.end(),
                         [](const RankCost& a, const RankCost& b) {
                           return a.memory.total() < b.memory.total();
                         });
    out.put("<tr><th>{}</th>", shown.plan.options.strategy);
    const Amounts amounts = amounts_of(fullest->memory);
    for (size_t kind = 0; kind < kinds; ++kind)
      out.put("<td class=\"n\">{}</td>", bytes_text(amounts[kind]));
    out.put("<td class=\"n\"><b>{}</b></td><td class=\"n\">{}</td></tr>\n",
            human_bytes(fullest->memory.total().value()),
            bytes_text(shown.plan.summary.memory_per_rank_mean));
  }
  out.add("</tbody></table></div>");
}

std::string note_of(const ReportPlan& shown) {
  if (shown.ranks.size() <= kMaxMemoryPoints) return "";
  return cat("Each step stands for ",
             (shown.ranks.size() + kMaxMemoryPoints - 1) / kMaxMemoryPoints,
             " ranks and shows the fullest of them.");
}

}  // namespace

void add_memory(Html& out, const PageView& view) {
  begin_section(out, "memory", "Memory per rank");
  const ReportPlan& shown = view.plan();
  if (shown.ranks.empty()) {
    out.add("<p>No ranks.</p>");
    end_section(out);
    return;
  }
  out.put("<p>What Canzona allocates on every rank with {}.</p>",
          shown.plan.options.strategy);
  put_drawing(
      out, [&](double width) { return draw_memory(shown, width); },
      note_of(shown));
  std::vector<LegendEntry> entries;
  for (size_t kind = 0; kind < num_kinds(view); ++kind)
    entries.push_back({cat("k", kind), kKinds[kind]});
  put_legend(out, entries);
  put_table(out, view);
  end_section(out);
}

// Bytes on the wire per collective and link class.
namespace {

// The moment at which a collective runs, and its axis.
constexpr std::array kWhen = {"backward, over dp", "backward, over dp",
                              "step, over tp",     "step, over tp",
                              "forward, over dp",  "step, over dp",
                              "step, in teams",    "step, in teams"};
static_assert(kWhen.size() == kNumCollectives);

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
            human_bytes(spread.most), bytes_text(spread.mean));
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
  if (rows.empty())
    out.add("<tr><td colspan=\"7\">nothing is sent</td></tr>\n");
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
  for (const ReportPlan& shown : view.plans)
    put_plan(out, view, shown, longest);
  out.add("</table></div>");
  put_legend(out, {{"k0", "within a node"}, {"k3", "between nodes"}});
  end_section(out);
}

// Hierarchical ZeRO: how tensors are cut, and what that sends.
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

// Memory per rank, stacked by kind.

#include <algorithm>
#include <array>

#include "canzona/base/text.h"
#include "canzona/report/html_chart.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/numbers.h"

namespace canzona {
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

// What is drawn: every rank, or of equal runs of ranks the fullest.
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
      if (r == first || total(amounts) > total(best.amounts)) {
        best = {static_cast<int32_t>(r), amounts};
      }
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
  return cat(kKinds[kind], ": ", human_bytes(static_cast<int64_t>(low)), " to ",
             human_bytes(static_cast<int64_t>(high)), " per rank");
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
      chart.svg().rect(
          {slots.at(static_cast<double>(i) + 0.1), y, slots.width * 0.8,
           chart.y(below) - y},
          cat("run k", kind),
          cat(rank_title(mesh, columns[i].rank), ", ", kKinds[kind], ": ",
              human_bytes(static_cast<int64_t>(amount)), " of ",
              human_bytes(static_cast<int64_t>(total(columns[i].amounts)))),
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
  for (const MemoryColumn& column : columns) {
    most = std::max(most, total(column.amounts));
  }
  const auto cap = static_cast<double>(shown.plan.options.memory_cap_bytes);
  // A cap far above would flatten the rest; the headline names it anyway.
  const bool show_cap = cap > 0 && cap < 4 * most;
  const double top = std::max(most, show_cap ? cap : 0) * 1.06;
  Chart chart("Memory per rank, stacked by kind", kMemoryHeight, top, 38,
              width);
  chart.draw_axis(byte_ticks(top));
  if (columns.size() <= kMaxBars) {
    draw_bars(chart, shown.plan.mesh, columns);
  } else {
    draw_areas(chart, shown.ranks, columns);
  }
  std::vector<Reference> lines{
      {shown.plan.summary.memory_per_rank_mean,
       cat("mean ", human_bytes(static_cast<int64_t>(
                        shown.plan.summary.memory_per_rank_mean))),
       "mean-line"}};
  if (show_cap) {
    lines.push_back({cap, cat("cap ", human_bytes(static_cast<int64_t>(cap))),
                     "makespan-line"});
  }
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
    for (size_t kind = 0; kind < kinds; ++kind) {
      out.put("<td class=\"n\">{}</td>",
              human_bytes(static_cast<int64_t>(amounts[kind])));
    }
    out.put("<td class=\"n\"><b>{}</b></td><td class=\"n\">{}</td></tr>\n",
            human_bytes(fullest->memory.total().value()),
            human_bytes(
                static_cast<int64_t>(shown.plan.summary.memory_per_rank_mean)));
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
  for (size_t kind = 0; kind < num_kinds(view); ++kind) {
    entries.push_back({cat("k", kind), kKinds[kind]});
  }
  put_legend(out, entries);
  put_table(out, view);
  end_section(out);
}

}  // namespace canzona

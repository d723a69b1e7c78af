// The page of a plan of given storage.
#include <algorithm>
#include <array>

#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/plan/placed/placed_schedule.h"
#include "canzona/report/html.h"
#include "canzona/report/numbers.h"
#include "canzona/report/placed_view.h"
#include "canzona/report/plan_view.h"

namespace canzona {
namespace {

constexpr double kPlacedBarsHeight = 220;
constexpr size_t kMostColumns = 64;
constexpr size_t kMostRows = 2000;
constexpr size_t kMostRoundRows = 64;

// Bars of parts on top of each other, one per rank, or, where ranks are many,
// one for the largest of several in a row.
struct StackedBars {
  std::string title;
  std::vector<std::string> css;            // by part
  std::vector<std::vector<double>> parts;  // by rank and part
  std::vector<Reference> references;
  std::vector<Tick> (*ticks)(double top) = plain_ticks;
  std::string (*text)(double value) = ratio_text;
};

double height_of(const std::vector<double>& parts) {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

// The largest rank of each run of ranks that share a column.
std::vector<size_t> ranks_of_columns(const StackedBars& bars) {
  const size_t ranks = bars.parts.size();
  const size_t run = (ranks + kMostColumns - 1) / kMostColumns;
  std::vector<size_t> out;
  for (size_t first = 0; first < ranks; first += run) {
    size_t best = first;
    for (size_t r = first; r < std::min(first + run, ranks); ++r)
      if (height_of(bars.parts[r]) > height_of(bars.parts[best])) best = r;
    out.push_back(best);
  }
  return out;
}

std::string draw_stacked(const StackedBars& bars, double width) {
  double top = 0;
  for (const auto& parts : bars.parts) top = std::max(top, height_of(parts));
  for (const Reference& line : bars.references) top = std::max(top, line.value);
  top = top > 0 ? top * 1.06 : 1;
  Chart chart(bars.title, kPlacedBarsHeight, top, 38, width);
  chart.draw_axis(bars.ticks(top));
  const std::vector<size_t> columns = ranks_of_columns(bars);
  const ChartSlots slots(chart, columns.size());
  const double gap = slots.width * 0.18;
  const auto every = std::max<size_t>(1, static_cast<size_t>(24 / slots.width));
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto& parts = bars.parts[columns[i]];
    double below = 0;
    for (size_t p = 0; p < parts.size(); ++p) {
      if (parts[p] <= 0) continue;
      const double y = chart.y(below + parts[p]);
      chart.svg().rect({slots.at(static_cast<double>(i)) + gap / 2, y,
                        slots.width - gap, chart.y(below) - y},
                       bars.css[p],
                       cat("rank ", columns[i], ": ", bars.text(parts[p])));
      below += parts[p];
    }
    if (i % every == 0)
      chart.svg().text(slots.at(static_cast<double>(i) + 0.5),
                       chart.bottom() + 14, "middle", cat(columns[i]));
  }
  chart.svg().text(slots.left, chart.bottom() + 30, "start dim",
                   columns.size() < bars.parts.size()
                       ? "rank; each bar is the largest of several in a row"
                       : "rank");
  chart.draw_references(bars.references);
  return chart.take();
}

void put_stacked(Html& out, const StackedBars& bars, std::string_view caption) {
  put_drawing(
      out, [&](double width) { return draw_stacked(bars, width); }, caption);
}

void put_placed_head(Html& out, const PlacedPlan& plan,
                     const PlacedFigures& figures) {
  out.put(
      "<header><p class=\"kind\">Canzona plan of placed storage</p><h1>{} on "
      "{}</h1>",
      counted(std::ssize(plan.matrices), "matrix"),
      counted(plan.world, "rank"));
  out.put("<p class=\"asked\">{} · wire <b>{}</b></p></header>\n",
          placed_rules_text(plan), name_of(kWireNames, plan.options.wire));
  out.add("<div class=\"tiles\">\n");
  if (plan.matrices.empty())
    put_tile(out, "Makespan", "–", "", {"no matrices: nothing to balance"});
  else
    put_tile(out, "Makespan", ratio_text(figures.makespan_over_bound),
             "× the lower bound",
             {ratio_text(figures.makespan_over_mean) + " × the mean load"});
  put_tile(out, "Idle ranks", grouped(plan.summary.idle_ranks),
           cat("of ", grouped(plan.world)), {"own no matrix"});
  put_tile(out, "Bytes per rank",
           human_bytes(plan.summary.bytes_per_rank_max.value()), "",
           {"sent by the busiest rank in a step"});
  out.add(
      "</div>\n<details class=\"facts\"><summary>What was asked"
      "</summary><dl>\n");
  put_fact(out, "Tensors", counted(std::ssize(plan.tensors), "tensor"));
  put_fact(out, "Rules", placed_rules_text(plan));
  put_fact(out, "Capacity of a round",
           human_bytes(plan.options.capacity_bytes));
  put_fact(out, "States of replicas",
           plan.options.share_states ? "at the owner's line alone"
                                     : "on every replica");
  put_fact(out, "Ranks per node", grouped(plan.options.ranks_per_node));
  put_fact(out, "Cost", cost_source_text(plan.cost_basis));
  put_fact(out, "Digest", plan.digest);
  out.add("</dl></details>\n");
}

void put_placed_loads(Html& out, const PlacedPlan& plan,
                      const PlacedFigures& figures) {
  begin_section(out, "loads", "Load per rank");
  const double mean = plan.summary.mean;
  if (!(mean > 0)) {
    out.add("<p>No matrices, no load to balance.</p>");
    end_section(out);
    return;
  }
  StackedBars bars{.title = "Load per rank, as a multiple of the mean",
                   .css = {"after"},
                   .parts = {},
                   .references = {}};
  for (const double load : figures.loads) bars.parts.push_back({load / mean});
  const double bound = static_cast<double>(plan.summary.bound.value()) / mean;
  bars.references = {{1, "mean 1", "mean-line"},
                     {bound, "bound " + ratio_text(bound), "bound-line"}};
  put_stacked(out, bars,
              "The work of a rank over a period of steps. No owners can have a "
              "makespan below the bound.");
  end_section(out);
}

void put_placed_bytes(Html& out, const PlacedFigures& figures) {
  begin_section(out, "wire", "Bytes per rank and step");
  StackedBars bars{.title = "Bytes that a rank sends in a step",
                   .css = {"k0", "k1", "k2"},
                   .parts = {},
                   .references = {},
                   .ticks = byte_ticks,
                   .text = bytes_text};
  for (const PlacedBytes& bytes : figures.bytes)
    bars.parts.push_back({static_cast<double>(bytes.gather.sent()),
                          static_cast<double>(bytes.scatter.sent()),
                          static_cast<double>(bytes.broadcast.sent())});
  put_stacked(out, bars, "Sent by each rank.");
  put_legend(out, {{"k0", "gather to owners"},
                   {"k1", "scatter of updates"},
                   {"k2", "broadcast to replicas"}});
  end_section(out);
}

// Matrices and work of each round of a class.
void put_rounds_of(Html& out, const PlacedPlan& plan,
                   const PlacedFigures& figures, int32_t c) {
  const PlacedClass& own = plan.classes[index(c)];
  out.put("<h3>Class {}: {}, {}</h3><p>Exchanged over {}{}.</p>", c,
          counted(std::ssize(own.tensors), "tensor"),
          counted(own.num_rounds, "round"), few_ranks_text(own.lines.front()),
          own.lines.size() == 1
              ? std::string()
              : cat(" and ", counted(std::ssize(own.lines) - 1, "line"),
                    " like it; every update is broadcast to ",
                    own.lines.size() - 1, " more"));
  struct Round {
    int64_t matrices = 0;
    double work = 0;
    std::vector<double> of_rank;
  };
  std::vector<Round> rounds(index(own.num_rounds));
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    const PlacedMatrix& one = plan.matrices[m];
    if (plan.class_of[index(one.tensor)] != c || one.round < 0) continue;
    Round& round = rounds[index(one.round)];
    round.of_rank.resize(index(plan.world), 0);
    ++round.matrices;
    round.work += figures.work[m];
    round.of_rank[index(one.owner)] += figures.work[m];
  }
  out.add(
      "<div class=\"scroll\"><table class=\"wire\"><thead><tr><th>round</th>"
      "<th class=\"n\">matrices</th><th class=\"n\">work, busiest owner</th>"
      "<th class=\"n\">busiest / mean</th></tr></thead><tbody>\n");
  for (size_t r = 0; r < std::min(rounds.size(), kMostRoundRows); ++r) {
    const Round& round = rounds[r];
    const double most =
        round.of_rank.empty()
            ? 0
            : *std::max_element(round.of_rank.begin(), round.of_rank.end());
    std::vector<int32_t> ranks;
    for (const auto& line : own.lines)
      ranks.insert(ranks.end(), line.begin(), line.end());
    const double mean = round.work / static_cast<double>(ranks.size());
    out.put(
        "<tr><th>{}</th><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{}</td></tr>\n",
        r, round.matrices,
        cost_text(plan.cost_basis, most / static_cast<double>(figures.period)),
        mean > 0 ? ratio_text(most / mean) : "–");
  }
  out.add("</tbody></table></div>");
  if (rounds.size() > kMostRoundRows)
    out.put("<p>… and {} more.</p>", rounds.size() - kMostRoundRows);
}

void put_placed_rounds(Html& out, const PlacedPlan& plan,
                       const PlacedFigures& figures) {
  begin_section(out, "rounds", "Rounds");
  out.add(
      "<p>Matrices of a round are gathered to their owners, transformed and "
      "sent back together, while the next round is on its way.</p>");
  for (size_t c = 0; c < plan.classes.size(); ++c)
    put_rounds_of(out, plan, figures, static_cast<int32_t>(c));
  end_section(out);
}

void put_placed_order(Html& out, const PlacedPlan& plan,
                      const PlacedFigures& figures) {
  const auto busiest = static_cast<int32_t>(
      std::max_element(figures.loads.begin(), figures.loads.end()) -
      figures.loads.begin());
  begin_section(out, "schedule", "What a rank does, in order");
  out.put(
      "<p>A step on rank {}, the busiest: <code>canzona explain plan.json "
      "--rank N</code> tells it of any other.</p>",
      busiest);
  const PlacedOrder order = placed_order(plan, busiest);
  put_order(out, kPlacedOrderColumns, order);
  end_section(out);
}

void put_placed_matrices(Html& out, const PlacedPlan& plan,
                         const PlacedFigures& figures) {
  begin_section(out, "matrices", "Matrices and their owners");
  out.add(
      "<div class=\"scroll\"><table class=\"wire\"><thead><tr><th>matrix</th>"
      "<th class=\"n\">shape</th><th>rule</th><th class=\"n\">owner</th>"
      "<th class=\"n\">class</th><th class=\"n\">round</th>"
      "<th class=\"n\">cost</th></tr></thead><tbody>\n");
  const size_t shown = std::min(plan.matrices.size(), kMostRows);
  for (size_t i = 0; i < shown; ++i) {
    const PlacedMatrix& m = plan.matrices[i];
    const PlacedTensor& tensor = plan.tensors[index(m.tensor)];
    out.put(
        "<tr><th>{}</th><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}"
        "</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td "
        "class=\"n\">{}</td></tr>\n",
        placed_matrix_name(tensor, m), dims_text({m.rows, m.cols}),
        plan.groups[index(tensor.group)].rule, m.owner,
        plan.class_of[index(m.tensor)], m.round < 0 ? "stays" : cat(m.round),
        cost_text(plan.cost_basis,
                  figures.work[i] / static_cast<double>(figures.period)));
  }
  out.add("</tbody></table></div>");
  if (plan.matrices.size() > shown)
    out.put("<p>… and {} more; plan.json has all.</p>",
            plan.matrices.size() - shown);
  end_section(out);
}

}  // namespace

std::string placed_html(const PlacedPlan& plan) {
  const PlacedFigures figures(plan);
  const Page page{
      .title = cat("Plan of placed storage, ", counted(plan.world, "rank")),
      .footer =
          "Made by Canzona from storage that is given; opens "
          "offline.",
      .script = html_hint_script()};
  Html out;
  begin_page(out, page);
  put_placed_head(out, plan, figures);
  out.add(
      "<nav><a href=\"#loads\">Load</a><a href=\"#wire\">Bytes</a>"
      "<a href=\"#rounds\">Rounds</a><a href=\"#schedule\">Order</a>"
      "<a href=\"#matrices\">Matrices</a></nav>\n<main>\n");
  put_placed_loads(out, plan, figures);
  put_placed_bytes(out, figures);
  put_placed_rounds(out, plan, figures);
  put_placed_order(out, plan, figures);
  put_placed_matrices(out, plan, figures);
  end_page(out, page);
  return out.take();
}

}  // namespace canzona

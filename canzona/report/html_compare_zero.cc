// Sizes of hierarchical ZeRO as a page: bars of memory against the cap, bytes
// by link class, and the ranking.

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/compare_zero.h"
#include "canzona/report/html_chart.h"
#include "canzona/report/html_page.h"
#include "canzona/report/html_script.h"
#include "canzona/report/numbers.h"

namespace canzona {
namespace {

constexpr double kLeft = 118;
// Where sizes of experts stand beside those of dense tensors.
constexpr double kLeftOfExperts = 196;
constexpr double kRight = kDrawingWidth - 96;
constexpr double kRow = 22;
constexpr double kTop = 26;

std::string bytes_text(int64_t bytes) { return human_bytes(bytes); }

std::string sizes_text(const ZeroSizes& sizes) {
  return cat(sizes.z1, ", ", sizes.z2, ", ", sizes.z3);
}

// "16, 4, 4", and of experts with their own sizes: "16, 4, 4 / 4, 2, 2".
std::string choice_text(const ComparedZero& row) {
  std::string text = sizes_text(row.sizes);
  if (row.experts.z1 > 0) text += cat(" / ", sizes_text(row.experts));
  return row.strategy.empty() ? text : cat(text, " ", row.strategy);
}

// Horizontal bars, a row for each choice.
class Bars {
 public:
  Bars(std::string_view name, const ZeroComparison& all, size_t rows,
       double most)
      : left_(all.has_experts() ? kLeftOfExperts : kLeft),
        most_(most > 0 ? most : 1),
        bottom_(kTop + kRow * static_cast<double>(rows)),
        svg_(kDrawingWidth, bottom_ + 22, name) {
    for (const Tick& tick : byte_ticks(most_)) {
      svg_.line(x(tick.value), kTop - 4, x(tick.value), bottom_, "grid");
      svg_.text(x(tick.value), bottom_ + 15, "middle dim", tick.text);
    }
  }

  void begin(size_t row, const ComparedZero& choice) {
    y_ = kTop + kRow * static_cast<double>(row);
    at_ = 0;
    svg_.text(left_ - 8, y_ + 14, "end", choice_text(choice));
  }
  void add(int64_t bytes, const std::string& css, const std::string& what) {
    if (bytes <= 0) return;
    const double end = at_ + static_cast<double>(bytes);
    svg_.rect({x(at_), y_ + 2, x(end) - x(at_), kRow - 5}, "run " + css,
              cat(what, ": ", bytes_text(bytes)));
    at_ = end;
  }
  void end(const std::string& text) {
    svg_.text(kRight + 8, y_ + 14, "start", text);
  }
  void mark(double value, const std::string& text) {
    svg_.line(x(value), kTop - 8, x(value), bottom_, "makespan-line");
    svg_.text(x(value), 12, "middle makespan-line", text);
  }
  std::string take() { return svg_.take(); }

 private:
  double x(double value) const {
    return left_ + (kRight - left_) * value / most_;
  }

  double left_, most_, bottom_;
  Svg svg_;
  double y_ = 0, at_ = 0;
};

std::vector<const ComparedZero*> planned(const ZeroComparison& all) {
  std::vector<const ComparedZero*> rows;
  for (const ComparedZero& row : all.rows)
    if (row.planned) rows.push_back(&row);
  return rows;
}

void add_memory(Html& out, const ZeroComparison& all) {
  begin_section(out, "memory", "Memory of the fullest rank");
  const std::vector<const ComparedZero*> rows = planned(all);
  int64_t most = all.memory_cap_bytes;
  for (const ComparedZero* row : rows) most = std::max(most, all.total(*row));
  Bars bars("Memory of the fullest rank by kind", all, rows.size(),
            static_cast<double>(most));
  std::vector<LegendEntry> legend;
  for (size_t i = 0; i < rows.size(); ++i) {
    bars.begin(i, *rows[i]);
    const std::vector<ZeroMemory> kinds = memory_of(all, *rows[i]);
    for (size_t k = 0; k < kinds.size(); ++k) {
      const std::string css = k < 6 ? cat("k", k) : "every";
      bars.add(kinds[k].bytes, css,
               cat(choice_text(*rows[i]), ": ", kinds[k].name));
      const bool known = std::ranges::any_of(
          legend, [&](const LegendEntry& e) { return e.css == css; });
      if (kinds[k].bytes > 0 && !known) legend.push_back({css, kinds[k].name});
    }
    bars.end(
        cat(bytes_text(all.total(*rows[i])), rows[i]->fits ? "" : " over"));
  }
  if (all.memory_cap_bytes > 0)
    bars.mark(static_cast<double>(all.memory_cap_bytes),
              cat("cap ", bytes_text(all.memory_cap_bytes)));
  put_figure(out, bars.take(),
             all.has_experts() ? "z1, z2, z3 of dense tensors / of experts, in "
                                 "the order of the ranking."
                               : "z1, z2, z3 in the order of the ranking.");
  put_legend(out, legend);
  end_section(out);
}

void add_bytes(Html& out, const ZeroComparison& all) {
  begin_section(out, "bytes", "Bytes that a rank sends in an iteration");
  const std::vector<const ComparedZero*> rows = planned(all);
  int64_t most = 0;
  for (const ComparedZero* row : rows)
    most = std::max(most, row->fast_bytes + row->slow_bytes);
  Bars bars("Bytes by link class", all, rows.size(), static_cast<double>(most));
  for (size_t i = 0; i < rows.size(); ++i) {
    const ComparedZero& row = *rows[i];
    const std::string name = choice_text(row);
    bars.begin(i, row);
    bars.add(row.fast_bytes, "k0", name + ", within a node");
    bars.add(row.slow_bytes, "k3", name + ", between nodes");
    bars.end(human_seconds(row.seconds));
  }
  put_figure(out, bars.take(),
             "Beside each bar the predicted time of an iteration.");
  put_legend(
      out,
      {{"k0", cat("within a node of ", counted(all.ranks_per_node, "rank"))},
       {"k3", "between nodes"}});
  end_section(out);
}

std::string remarks(const ZeroComparison& all, const ComparedZero& row) {
  std::vector<std::string> words;
  if (row.replicas > 1) words.push_back(counted(row.replicas, "replica"));
  const int32_t homes = all.mesh.expert_homes();
  if (row.experts.z1 > 0 && row.experts.z1 < homes)
    words.push_back(counted(homes / row.experts.z1, "replica") + " of experts");
  if (row.z2_crosses_nodes) words.emplace_back("z2 crosses nodes");
  if (row.z3_crosses_nodes) words.emplace_back("z3 crosses nodes");
  return join(words, ", ");
}

void add_ranking(Html& out, const ZeroComparison& all) {
  begin_section(out, "ranking", "Ranking");
  out.add(
      "<div class=\"scroll\"><table class=\"wide\"><thead><tr>"
      "<th>z1, z2, z3</th>");
  if (all.has_experts()) out.add("<th>experts</th>");
  out.add(
      "<th class=\"n\">memory</th>"
      "<th class=\"n\">within a node</th><th class=\"n\">between nodes</th>"
      "<th class=\"n\">step</th><th class=\"n\">iteration</th><th>why</th>"
      "</tr></thead><tbody>\n");
  for (const ComparedZero& row : all.rows) {
    out.put("<tr><th>{}<small> {} {}</small></th>", sizes_text(row.sizes),
            row.strategy, remarks(all, row));
    if (all.has_experts())
      out.put("<td>{}</td>",
              row.experts.z1 > 0 ? sizes_text(row.experts) : "–");
    if (row.planned)
      out.put(
          "<td class=\"n{}\">{}</td><td class=\"n\">{}</td>"
          "<td class=\"n\">{}</td><td class=\"n\">{}</td>"
          "<td class=\"n{}\">{}</td>",
          row.fits ? "" : " over", bytes_text(all.total(row)),
          bytes_text(row.fast_bytes), bytes_text(row.slow_bytes),
          human_seconds(row.step_seconds),
          &row == &all.rows.front() && row.fits ? " best" : "",
          human_seconds(row.seconds));
    else
      out.add("<td class=\"n\" colspan=\"5\">–</td>");
    out.put("<td>{}</td></tr>\n", row.reason);
  }
  out.put(
      "</tbody></table></div><p class=\"note\">States are cut over z1, "
      "gradients over z2, parameters over z3 of the data-parallel ranks. "
      "Times are predicted: {}.</p>",
      all.rates);
  end_section(out);
}

std::vector<std::string> choice_notes(const ComparedZero& best) {
  std::vector<std::string> notes;
  if (best.experts.z1 > 0)
    notes.push_back(cat("experts ", sizes_text(best.experts)));
  if (!best.strategy.empty()) notes.push_back(best.strategy);
  notes.push_back(best.reason);
  return notes;
}

void add_headline(Html& out, const ZeroComparison& all) {
  out.put(
      "<header><p class=\"kind\">Canzona compare, hierarchical ZeRO</p>"
      "<h1>{}</h1><p class=\"asked\"><b>{}</b> on {}, {} a node · rule "
      "<b>{}</b> · {} parameters · {}</p><p "
      "class=\"verdict\">{}</p></header>\n",
      all.model, counted(all.mesh.world(), "rank"), to_string(all.mesh),
      all.ranks_per_node, all.rule, all.parameters, all.work, all.verdict);
  if (all.rows.empty() || !all.rows.front().planned) return;
  const ComparedZero& best = all.rows.front();
  out.add("<div class=\"tiles\">\n");
  put_tile(out, best.fits ? "Choice" : "Nearest", sizes_text(best.sizes),
           "z1, z2, z3", choice_notes(best));
  put_tile(
      out, "Memory per rank", bytes_text(all.total(best)), "at most",
      {all.memory_cap_bytes > 0 ? cat("cap ", bytes_text(all.memory_cap_bytes))
                                : "no cap"});
  put_tile(out, "Sent between nodes", bytes_text(best.slow_bytes), "",
           {cat("within a node ", bytes_text(best.fast_bytes))});
  put_tile(out, "Predicted iteration", human_seconds(best.seconds), "",
           {cat("of it the step ", human_seconds(best.step_seconds))});
  out.add("</div>\n");
}

}  // namespace

std::string zero_comparison_html(const ZeroComparison& all) {
  const Page page{
      .title = cat(all.model, " on ", to_string(all.mesh), ", ZeRO"),
      .footer = "Made by Canzona from shapes alone; opens offline.",
      .script = html_hint_script(),
      .style = "td.over{color:var(--s5)}\n"};
  Html out;
  begin_page(out, page);
  add_headline(out, all);
  out.add(
      "<nav><a href=\"#memory\">Memory</a><a href=\"#bytes\">Bytes</a>"
      "<a href=\"#ranking\">Ranking</a></nav>\n<main>\n");
  add_memory(out, all);
  add_bytes(out, all);
  add_ranking(out, all);
  end_page(out, page);
  return out.take();
}

}  // namespace canzona

// Sizes of hierarchical ZeRO as a page: bars of memory against the cap, bytes
// by link class, and the ranking.

#include <algorithm>
#include <functional>
#include <span>

#include "canzona/base/text.h"
#include "canzona/plan/zero.h"
#include "canzona/report/compare_zero.h"
#include "canzona/report/html.h"
#include "canzona/report/numbers.h"
#include "canzona/sim/search_reason.h"

namespace canzona {
namespace {

constexpr double kZeroTop = 26;
// This many rows are seen at once; the rest is folded away.
constexpr size_t kRowsShown = 10;

using Rows = std::span<const RankedZero* const>;

std::string sizes_text(const ZeroSizes& sizes) {
  return cat(sizes.z1, ", ", sizes.z2, ", ", sizes.z3);
}

std::string name_of_sizes(const ZeroComparison& all, const RankedZero& row) {
  return zero_name(row.choice.sizes, all.mesh.homes());
}

std::string name_of_experts(const ZeroComparison& all, const RankedZero& row) {
  return row.weight.experts.z1 > 0
             ? zero_name(row.weight.experts, all.mesh.expert_homes())
             : "–";
}

// As one types it: "hier:8", and of experts with their own sizes:
// "hier:8 / zero1".
std::string choice_text(const ZeroComparison& all, const RankedZero& row) {
  std::string text = name_of_sizes(all, row);
  if (row.weight.experts.z1 > 0) text += cat(" / ", name_of_experts(all, row));
  return !all.several_strategies ? text : cat(text, " ", row.choice.strategy);
}

// A BarFrame says where the bars of a drawing lie. A wide one has names before
// its bars and figures behind them, a narrow one both above.
struct BarFrame {
  bool narrow = false;
  double width = kDrawingWidth;
  double left = 118;
  double right = kDrawingWidth - 120;  // behind it "1023.00 GiB over"
  double row = 22;
};

BarFrame frame_of(const ZeroComparison& all, Rows rows, double width) {
  if (width < kDrawingWidth) return {true, width, 8, width - 26, 40};
  BarFrame frame;
  for (const RankedZero* row : rows) {
    const double name = text_width(choice_text(all, *row));
    frame.left = std::max(frame.left, name + 16);
  }
  return frame;
}

// Horizontal bars, a row for each choice.
class Bars {
 public:
  Bars(std::string_view name, const BarFrame& frame, size_t rows, double most)
      : frame_(frame),
        most_(most > 0 ? most : 1),
        bottom_(kZeroTop + frame.row * static_cast<double>(rows)),
        svg_(frame.width, bottom_ + 22, name) {
    for (const Tick& tick : byte_ticks(most_)) {
      svg_.line(x(tick.value), kZeroTop - 4, x(tick.value), bottom_, "grid");
      svg_.text(x(tick.value), bottom_ + 15, "middle dim", tick.text);
    }
  }

  void begin(size_t row, const std::string& name) {
    y_ = kZeroTop + frame_.row * static_cast<double>(row);
    at_ = 0;
    if (frame_.narrow)
      svg_.text(0, y_ + 14, "start strong", name);
    else
      svg_.text(frame_.left - 8, y_ + 14, "end", name);
  }
  void add(int64_t bytes, const std::string& css, const std::string& what) {
    if (bytes <= 0) return;
    const double end = at_ + static_cast<double>(bytes);
    svg_.rect({x(at_), y_ + (frame_.narrow ? 19 : 2), x(end) - x(at_), 17},
              "run " + css, cat(what, ": ", human_bytes(bytes)));
    at_ = end;
  }
  void end(const std::string& text) {
    if (frame_.narrow)
      svg_.text(frame_.width, y_ + 14, "end", text);
    else
      svg_.text(frame_.right + 8, y_ + 14, "start", text);
  }
  // A line from top to bottom; its label stays inside the drawing.
  void mark(double value, const std::string& text) {
    const double half = text_width(text) / 2;
    svg_.line(x(value), kZeroTop - 8, x(value), bottom_, "makespan-line");
    svg_.text(std::clamp(x(value), half, frame_.width - half), 12,
              "middle makespan-line", text);
  }
  std::string take() { return svg_.take(); }

 private:
  double x(double value) const {
    return frame_.left + (frame_.right - frame_.left) * value / most_;
  }

  BarFrame frame_;
  double most_, bottom_;
  Svg svg_;
  double y_ = 0, at_ = 0;
};

std::vector<const RankedZero*> planned(const ZeroComparison& all) {
  std::vector<const RankedZero*> rows;
  for (const RankedZero& row : all.search.ranking)
    if (row.is_planned()) rows.push_back(&row);
  return rows;
}

// The picture of every choice, whichever are drawn together.
struct BarPicture {
  std::string name;
  double most = 0;  // where the axis ends
  std::function<void(Bars&, const RankedZero&)> fill;
  double cap = 0;  // a line across; 0: none
};

std::string draw_bars(const ZeroComparison& all, const BarPicture& picture,
                      Rows rows, double width) {
  Bars bars(picture.name, frame_of(all, rows, width), rows.size(),
            picture.most);
  for (size_t i = 0; i < rows.size(); ++i) {
    bars.begin(i, choice_text(all, *rows[i]));
    picture.fill(bars, *rows[i]);
  }
  if (picture.cap > 0)
    bars.mark(picture.cap, cat("cap ", bytes_text(picture.cap)));
  return bars.take();
}

// Calls `put` for the first rows, and for the others inside a fold.
template <class List, class Put>
void put_folded(Html& out, const List& rows, const Put& put) {
  const size_t shown = std::min(rows.size(), kRowsShown);
  put(rows.first(shown));
  if (shown == rows.size()) return;
  out.put("<details class=\"rest\"><summary>{} more</summary>\n",
          counted(static_cast<int64_t>(rows.size() - shown), "choice"));
  put(rows.subspan(shown));
  out.add("</details>\n");
}

void put_bars(Html& out, const ZeroComparison& all, const BarPicture& picture,
              const std::string& caption) {
  const std::vector<const RankedZero*> rows = planned(all);
  put_folded(out, Rows(rows), [&](Rows some) {
    put_drawing(
        out, [&](double width) { return draw_bars(all, picture, some, width); },
        some.data() == rows.data() ? caption : "");
  });
}

std::string css_of_kind(size_t kind) {
  return kind < 6 ? cat("k", kind) : "every";
}

std::vector<LegendEntry> memory_legend(const ZeroComparison& all) {
  std::vector<LegendEntry> legend;
  for (const RankedZero* row : planned(all)) {
    const std::vector<ZeroMemory> kinds = memory_of(all, *row);
    for (size_t k = 0; k < kinds.size(); ++k) {
      const std::string css = css_of_kind(k);
      const bool known = std::ranges::any_of(
          legend, [&](const LegendEntry& e) { return e.css == css; });
      if (kinds[k].bytes > 0 && !known) legend.push_back({css, kinds[k].name});
    }
  }
  return legend;
}

void add_memory(Html& out, const ZeroComparison& all) {
  begin_section(out, "memory", "Memory of the fullest rank");
  int64_t most = all.options.memory_cap_bytes;
  for (const RankedZero* row : planned(all))
    most = std::max(most, all.total(*row));
  const BarPicture picture{
      .name = "Memory of the fullest rank by kind",
      .most = static_cast<double>(most),
      .fill =
          [&](Bars& bars, const RankedZero& row) {
            const std::vector<ZeroMemory> kinds = memory_of(all, row);
            for (size_t k = 0; k < kinds.size(); ++k)
              bars.add(kinds[k].bytes, css_of_kind(k),
                       cat(choice_text(all, row), ": ", kinds[k].name));
            bars.end(
                cat(human_bytes(all.total(row)), row.fits() ? "" : " over"));
          },
      .cap = static_cast<double>(all.options.memory_cap_bytes)};
  put_bars(out, all, picture,
           all.has_experts()
               ? "Choices as --zero / --zero-experts take them, in the order "
                 "of the ranking."
               : "Choices as --zero takes them, in the order of the ranking.");
  put_legend(out, memory_legend(all));
  end_section(out);
}

void add_bytes(Html& out, const ZeroComparison& all) {
  begin_section(out, "bytes", "Bytes that a rank sends in an iteration");
  int64_t most = 0;
  for (const RankedZero* row : planned(all))
    most = std::max(most, row->weight.fast_bytes + row->weight.slow_bytes);
  const BarPicture picture{
      .name = "Bytes by link class",
      .most = static_cast<double>(most),
      .fill = [&](Bars& bars, const RankedZero& row) {
        const std::string name = choice_text(all, row);
        bars.add(row.weight.fast_bytes, "k0", name + ", within a node");
        bars.add(row.weight.slow_bytes, "k3", name + ", between nodes");
        bars.end(human_seconds(row.weight.seconds));
      }};
  put_bars(out, all, picture,
           "Beside each bar the predicted time of an iteration.");
  put_legend(out, {{"k0", cat("within a node of ",
                              counted(all.options.ranks_per_node, "rank"))},
                   {"k3", "between nodes"}});
  end_section(out);
}

std::string remarks(const ZeroComparison& all, const RankedZero& row) {
  std::vector<std::string> words;
  if (row.weight.replicas > 1)
    words.push_back(counted(row.weight.replicas, "replica"));
  const int32_t homes = all.mesh.expert_homes();
  if (row.weight.experts.z1 > 0 && row.weight.experts.z1 < homes)
    words.push_back(counted(homes / row.weight.experts.z1, "replica") +
                    " of experts");
  if (row.weight.z2_crosses_nodes) words.emplace_back("z2 crosses nodes");
  if (row.weight.z3_crosses_nodes) words.emplace_back("z3 crosses nodes");
  return join(words, ", ");
}

void put_ranked(Html& out, const ZeroComparison& all, const RankedZero& row) {
  out.put("<tr><th>{}<small> {}</small></th>", name_of_sizes(all, row),
          all.several_strategies ? row.choice.strategy : "");
  if (all.has_experts()) out.put("<td>{}</td>", name_of_experts(all, row));
  out.put("<td class=\"n\">{}</td>", sizes_text(row.choice.sizes));
  if (row.is_planned())
    out.put(
        "<td class=\"n{}\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"n{}\">{}</td>",
        row.fits() ? "" : " over", human_bytes(all.total(row)),
        human_bytes(row.weight.fast_bytes), human_bytes(row.weight.slow_bytes),
        human_seconds(row.weight.step_seconds),
        &row == &all.search.ranking.front() && row.fits() ? " best" : "",
        human_seconds(row.weight.seconds));
  else
    out.add("<td class=\"n\" colspan=\"5\">–</td>");
  const std::string more = remarks(all, row);
  out.put("<td class=\"why\">{}<small>{}{}</small></td></tr>\n",
          brief_reason(row, all.search), more.empty() ? "" : "; ", more);
}

void add_ranking(Html& out, const ZeroComparison& all) {
  begin_section(out, "ranking", "Ranking");
  using Ranked = std::span<const RankedZero>;
  put_folded(out, Ranked(all.search.ranking), [&](Ranked some) {
    out.add(
        "<div class=\"scroll\"><table class=\"wide\"><thead><tr>"
        "<th>--zero</th>");
    if (all.has_experts()) out.add("<th>--zero-experts</th>");
    out.add(
        "<th class=\"n\">z1, z2, z3</th><th class=\"n\">memory</th>"
        "<th class=\"n\">within a node</th><th class=\"n\">between nodes</th>"
        "<th class=\"n\">step</th><th class=\"n\">iteration</th><th>why</th>"
        "</tr></thead><tbody>\n");
    for (const RankedZero& row : some) put_ranked(out, all, row);
    out.add("</tbody></table></div>\n");
  });
  out.put(
      "<p class=\"note\">States are cut over z1, "
      "gradients over z2, parameters over z3 of the data-parallel ranks. "
      "Times are predicted: {}.</p>",
      rates_text(all));
  end_section(out);
}

std::vector<std::string> choice_notes(const ZeroComparison& all,
                                      const RankedZero& best) {
  std::vector<std::string> notes;
  if (best.weight.experts.z1 > 0)
    notes.push_back(cat("experts ", name_of_experts(all, best)));
  if (all.several_strategies) notes.push_back(best.choice.strategy);
  notes.push_back(brief_reason(best, all.search));
  return notes;
}

void add_headline(Html& out, const ZeroComparison& all) {
  out.put(
      "<header><p class=\"kind\">Canzona compare, hierarchical ZeRO</p>"
      "<h1>{}</h1><p class=\"asked\"><b>{}</b> on {}, {} a node · rule "
      "<b>{}</b> · {} parameters · {}</p><p "
      "class=\"verdict\">{}</p></header>\n",
      all.model, counted(all.mesh.world(), "rank"), to_string(all.mesh),
      all.options.ranks_per_node, all.rule, to_string(all.options.parameters),
      work_text(all), all.search.summary());
  if (all.search.ranking.empty() || !all.search.ranking.front().is_planned())
    return;
  const RankedZero& best = all.search.ranking.front();
  out.add("<div class=\"tiles\">\n");
  put_tile(out, best.fits() ? "Choice" : "Nearest", name_of_sizes(all, best),
           cat("z1, z2, z3 = ", sizes_text(best.choice.sizes)),
           choice_notes(all, best));
  put_tile(out, "Memory per rank", human_bytes(all.total(best)), "at most",
           {all.options.memory_cap_bytes > 0
                ? cat("cap ", human_bytes(all.options.memory_cap_bytes))
                : "no cap"});
  put_tile(out, "Sent between nodes", human_bytes(best.weight.slow_bytes), "",
           {cat("within a node ", human_bytes(best.weight.fast_bytes))});
  put_tile(out, "Predicted iteration", human_seconds(best.weight.seconds), "",
           {cat("of it the step ", human_seconds(best.weight.step_seconds))});
  out.add("</div>\n");
}

}  // namespace

std::string zero_comparison_html(const ZeroComparison& all) {
  const Page page{
      .title = cat(all.model, " on ", to_string(all.mesh), ", ZeRO"),
      .footer = "Made by Canzona from shapes alone; opens offline.",
      .script = html_hint_script(),
      .style = "td.over{color:var(--s5)}\ntd.why{min-width:12rem}\n"};
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

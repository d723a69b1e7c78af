// Our HTML pages are made of these, from escaped text to the frame of a page.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "canzona/report/numbers.h"

namespace canzona {

// HTML as text that is safe by default: what is put into a format is escaped
// unless it says that it is markup.
//
//   Html out;
//   out.put("<td>{}</td><td>{:.2f}</td>", tensor.name, ratio);
//   out.put("<figure>{}</figure>", Markup{svg});
//   out.add("<hr>");
//
// One thread at a time.

// `text` as the content of an element or of a quoted attribute. Invalid UTF-8
// and control characters become U+FFFD.
std::string escape_html(std::string_view text);

// Text that is HTML already.
struct Markup {
  std::string_view html;
};

class Html {
  // Stands first because the signature of put() names it.
  static std::string_view safe(const Markup& markup) { return markup.html; }
  static std::string safe(std::string_view text) { return escape_html(text); }
  template <class T>
  requires std::is_arithmetic_v<T>
  static T safe(T number) { return number; }

 public:
  void add(std::string_view markup) { text_ += markup; }

  template <class... Args>
  void put(
      fmt::format_string<decltype(safe(std::declval<const Args&>()))...> format,
      const Args&... args) {
    fmt::format_to(std::back_inserter(text_), format, safe(args)...);
  }

  const std::string& text() const { return text_; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

// Drawings as SVG: shapes coloured by CSS class, so that they follow the
// page's light and dark colours, each with a <title> where it means something.
//
//   Svg svg(1040, 200, "Load per rank");
//   svg.rect({10, 20, 8, 100}, "c0", "rank 3: 1.02 × mean", "rank:3");
//   out.put("{}", Markup{svg.take()});
//
// One thread at a time.

inline constexpr double kDrawingWidth = 1040;
// The width of a drawing that is made a second time, for a narrow screen.
inline constexpr double kNarrowDrawing = 400;

struct SvgBox {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

// A coordinate, to a tenth (or hundredth) of a pixel, as short as possible.
std::string coordinate(double value, int decimals = 1);

// The width that a text takes at most in a drawing, in its units.
double text_width(std::string_view text);

class Svg {
 public:
  Svg(double width, double height, std::string_view title);

  // `query`: what the table of tensors shows when the shape is clicked.
  void rect(const SvgBox& box, std::string_view css,
            std::string_view title = "", std::string_view query = "");
  void line(double x1, double y1, double x2, double y2, std::string_view css);
  void path(std::string_view d, std::string_view css,
            std::string_view title = "");
  // css: "start", "middle" or "end" sets the anchor; more classes may follow.
  void text(double x, double y, std::string_view css, std::string_view text);

  std::string take();

 private:
  Html out_;
};

// About `count` round numbers from 0 up to at most `top`.
std::vector<double> round_ticks(double top, int count);

// A label beside a horizontal line.
struct SideLabel {
  double y = 0;
  std::string text;
  std::string css;
};

// Moves labels apart so that none overlaps another; order by height is kept.
void spread_labels(std::vector<SideLabel>& labels, double gap);

// The frame of a chart with a vertical axis that starts at 0: ticks, reference
// lines and their labels. Drawings add their own marks inside.
//
//   Chart chart("Load per rank", 240, 1.3);
//   chart.draw_axis({{0, "0"}, {1, "1"}});
//   chart.svg().rect({x, chart.y(load), 8, chart.bottom() - chart.y(load)}, …);

// A horizontal line across a chart, with its label.
struct Reference {
  double value = 0;
  std::string text;
  std::string css;
};

struct Tick {
  double value = 0;
  std::string text;
};

// Round multiples of 1 from 0 to `top`.
std::vector<Tick> plain_ticks(double top);
// Round numbers of bytes from 0 to `top`.
std::vector<Tick> byte_ticks(double top);

class Chart {
 public:
  // `top` is the largest value of the vertical axis; `below` the room for
  // labels under the horizontal one.
  Chart(std::string_view title, double height, double top, double below = 34,
        double width = kDrawingWidth);

  double left() const { return 58; }
  // Beside it is room for the labels of references.
  double right() const { return right_; }
  double bottom() const { return bottom_; }
  double width() const { return right() - left(); }
  double y(double value) const;

  void draw_axis(const std::vector<Tick>& ticks);
  void draw_references(const std::vector<Reference>& references);
  Svg& svg() { return svg_; }
  std::string take() { return svg_.take(); }

 private:
  double right_;
  double bottom_;
  double top_;
  Svg svg_;
};

// Positions of `count` equal slots across a chart, for marks one per rank.
struct ChartSlots {
  double left = 0;
  double width = 0;  // of one slot

  ChartSlots(const Chart& chart, size_t count);
  double at(double index) const { return left + width * index; }
};

// The frame of an HTML page of ours: one file that asks the network for
// nothing, in light and dark colours.
//
//   const Page page{.title = "qwen3", .footer = "…", .script = html_script()};
//   begin_page(out, page);
//   out.add("<header>…</header><main>");
//   begin_section(out, "loads", "Load");  …  end_section(out);
//   end_page(out, page);

struct Page {
  std::string title;
  std::string footer;
  std::string_view script;
  std::string_view style = "";  // more than every page has
};

// Up to the body's start. Only the page's own script may run in it.
void begin_page(Html& out, const Page& page);
// From the end of <main>.
void end_page(Html& out, const Page& page);

// Opens a section with its heading; `end_section` closes it.
void begin_section(Html& out, std::string_view id, std::string_view heading);
void end_section(Html& out);

// A table of what a rank does, in order: `order` has rows of cells, and how
// many rows were left out.
template <class Columns, class Order>
void put_order(Html& out, const Columns& columns, const Order& order) {
  out.add("<div class=\"scroll\"><table class=\"wire\"><thead><tr>");
  for (const char* column : columns) out.put("<th>{}</th>", column);
  out.add("</tr></thead><tbody>\n");
  for (const auto& row : order.rows) {
    out.add("<tr>");
    for (const std::string& cell : row) out.put("<td>{}</td>", cell);
    out.add("</tr>\n");
  }
  out.add("</tbody></table></div>");
  if (order.left_out > 0) out.put("<p>… and {} more.</p>", order.left_out);
}

// A drawing that shrinks with the screen.
void put_figure(Html& out, std::string_view svg, std::string_view caption);
// The same drawn twice: for a page, and for a narrow screen.
void put_figure(Html& out, std::string_view wide, std::string_view narrow,
                std::string_view caption);
template <class Draw>
void put_drawing(Html& out, const Draw& draw, std::string_view caption) {
  put_figure(out, draw(kDrawingWidth), draw(kNarrowDrawing), caption);
}

struct LegendEntry {
  std::string css;
  std::string text;
};
void put_legend(Html& out, const std::vector<LegendEntry>& entries);

// A figure that is seen first, with its name and remarks.
void put_tile(Html& out, std::string_view label, std::string_view figure,
              std::string_view unit, const std::vector<std::string>& notes);

// A name and its value in a list of facts; nothing where the value is empty.
void put_fact(Html& out, std::string_view name, std::string_view value);

// The style sheet of the HTML report.

std::string_view html_style();

// The script of the HTML report: search and sorting in the table of tensors,
// and quick hints. Everything else works without it. At its end it sets
// data-ready on the root element, so that a test can tell that it ran.

std::string_view html_script();

// The hints alone, for a page without that table.
std::string_view html_hint_script();

}  // namespace canzona

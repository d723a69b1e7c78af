// The frame of an HTML page of ours: one file that asks the network for
// nothing, in light and dark colours.
//
//   const Page page{.title = "qwen3", .footer = "…", .script = html_script()};
//   begin_page(out, page);
//   out.add("<header>…</header><main>");
//   begin_section(out, "loads", "Load");  …  end_section(out);
//   end_page(out, page);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canzona/report/html_svg.h"
#include "canzona/report/html_text.h"

namespace canzona {

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

}  // namespace canzona

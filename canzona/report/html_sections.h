// The sections of the HTML report, in the order of the page. Each appends one
// <section> and decides nothing but how to show what the plans say.
#pragma once

#include "canzona/report/html_text.h"
#include "canzona/report/html_view.h"

namespace canzona {

void add_headline(Html& out, const View& view);
void add_strategies(Html& out, const View& view);  // several plans only
void add_loads(Html& out, const View& view);
void add_buckets(Html& out, const View& view);
void add_micro_groups(Html& out, const View& view);
void add_memory(Html& out, const View& view);
void add_wire(Html& out, const View& view);
void add_tensors(Html& out, const View& view);
void add_glossary(Html& out);

// Opens a section with its heading; `end_section` closes it.
void begin_section(Html& out, std::string_view id, std::string_view heading);
void end_section(Html& out);

// A drawing in a figure that scrolls sideways on a narrow screen.
void put_figure(Html& out, std::string_view svg, std::string_view caption);

struct LegendEntry {
  std::string css;
  std::string text;
};
void put_legend(Html& out, const std::vector<LegendEntry>& entries);

}  // namespace canzona

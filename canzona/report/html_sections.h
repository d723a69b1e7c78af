// The sections of the HTML report, in the order of the page. Each appends one
// <section> and decides nothing but how to show what the plans say.
#pragma once

#include "canzona/report/html_page.h"
#include "canzona/report/html_text.h"
#include "canzona/report/html_view.h"

namespace canzona {

void add_headline(Html& out, const PageView& view);
void add_strategies(Html& out, const PageView& view);  // several plans only
void add_loads(Html& out, const PageView& view);
void add_buckets(Html& out, const PageView& view);
void add_micro_groups(Html& out, const PageView& view);
void add_memory(Html& out, const PageView& view);
void add_zero(Html& out, const PageView& view);  // where there is any
void add_wire(Html& out, const PageView& view);
void add_tensors(Html& out, const PageView& view);
void add_glossary(Html& out);

}  // namespace canzona

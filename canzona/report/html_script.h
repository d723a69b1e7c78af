// The script of the HTML report: search and sorting in the table of tensors,
// and quick hints. Everything else works without it. At its end it sets
// data-ready on the root element, so that a test can tell that it ran.
#pragma once

#include <string_view>

namespace canzona {

std::string_view html_script();

// Of a page without that table: the hints alone.
std::string_view html_hint_script();

}  // namespace canzona

// Reports as pages: one file of HTML that draws a report's JSON in the browser.
//
//   write_file("report.html", make_page(runs_json(all), {"runs.js"}));
//
// The sources of the pages are plain files in page/, which the build puts into
// the library. A page opens from disk, asks the network for nothing, and only
// its own script may run in it. Names from files stand in the JSON alone, and
// the script makes them text, never markup. The same JSON gives the same bytes.
// Pure; any thread may call.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace canzona {

// `json` must come from a JsonWriter, which escapes '<'. `scripts` are files of
// page/ beside those that every page has; the last one draws the report.
std::string make_page(std::string_view json,
                      std::initializer_list<std::string_view> scripts);

// The text of a file of page/; std::out_of_range if there is none of that name.
std::string_view page_file(std::string_view name);

}  // namespace canzona

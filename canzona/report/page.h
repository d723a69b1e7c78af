// Reports as pages: one file of HTML that draws a report's JSON in the browser.
//
//   write_file("report.html", make_page(to_json(runs_view(all), 0),
//   {"runs.js"}));
//
// The sources of the pages are plain files in page/, which the build embeds in
// the library. A page opens from disk, makes no network requests, and runs only
// its own script. Names from files occur only in the JSON, and the script
// inserts them as text, never as markup. The same JSON gives the same bytes.
// Pure; any thread may call.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

namespace canzona::report {

// `json` must come from a JsonWriter, which escapes '<'. `scripts` are files of
// page/, in addition to those of every page; the last one draws the report.
std::string make_page(std::string_view json,
                      std::initializer_list<std::string_view> scripts);

// Returns a file of page/; throws std::out_of_range for an unknown name.
std::string_view page_file(std::string_view name);

}  // namespace canzona::report

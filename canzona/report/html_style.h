// The style sheet of the HTML report.
#pragma once

#include <string_view>

namespace canzona {

std::string_view html_style();

}  // namespace canzona

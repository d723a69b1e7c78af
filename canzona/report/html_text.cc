#include "canzona/report/html_text.h"

#include "canzona/base/text.h"
#include "canzona/report/numbers.h"

namespace canzona {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string_view escape_of(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    case '\t':
    case '\n':
      return " ";
    default:
      return {};
  }
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_char(text, i);
    const std::string_view escape =
        c.valid && c.length == 1 ? escape_of(text[i]) : std::string_view{};
    if (!escape.empty()) {
      out += escape;
    } else if (!c.valid || c.code < 0x20 || c.code == 0x7F) {
      out += kReplacement;
    } else {
      out += text.substr(i, c.length);
    }
    i += c.length;
  }
  return out;
}

std::string counted(int64_t number, std::string_view thing) {
  if (number == 1) return fmt::format("1 {}", thing);
  if (thing == "matrix") return grouped(number) + " matrices";
  return fmt::format("{} {}s", grouped(number), thing);
}

}  // namespace canzona

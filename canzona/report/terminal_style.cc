#include "canzona/report/terminal_style.h"

#include <algorithm>

namespace canzona {
namespace {

constexpr char kEscape = '\x1b';

const char* code_of(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kBold:
      return "1";
    case Tone::kDim:
      return "2";
    case Tone::kAccent:
      return "36";
    case Tone::kGood:
      return "32";
    case Tone::kFair:
      return "33";
    case Tone::kPoor:
      return "31";
  }
  return "";
}

bool starts_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

// The place after the colour code that starts at `at`.
size_t skip_code(std::string_view text, size_t at) {
  const size_t end = text.find('m', at);
  return end == std::string_view::npos ? text.size() : end + 1;
}

// The byte where character number `n` starts.
size_t byte_of(std::string_view text, size_t n) {
  size_t at = 0;
  while (at < text.size()) {
    if (starts_character(text[at]) && n-- == 0) break;
    ++at;
  }
  return at;
}

}  // namespace

std::string Ink::operator()(Tone tone, std::string_view text) const {
  if (!colour_ || tone == Tone::kPlain || text.empty())
    return std::string(text);
  std::string out = "\x1b[";
  out.append(code_of(tone)).append("m").append(text).append("\x1b[0m");
  return out;
}

std::string title(const Ink& ink, std::string_view text) {
  return "\n" + ink(Tone::kBold, text) + "\n";
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == kEscape) {
      at = skip_code(text, at);
    } else {
      width += starts_character(text[at++]) ? 1 : 0;
    }
  }
  return width;
}

std::string pad_left(std::string_view text, size_t width) {
  const size_t have = display_width(text);
  return std::string(have < width ? width - have : 0, ' ').append(text);
}

std::string pad_right(std::string_view text, size_t width) {
  const size_t have = display_width(text);
  return std::string(text).append(have < width ? width - have : 0, ' ');
}

std::string shorten(std::string_view text, size_t width) {
  const size_t have = display_width(text);
  if (have <= width || width == 0) return std::string(text);
  const size_t tail = (width - 1) * 2 / 3;  // names differ mostly at the end
  const size_t head = width - 1 - tail;
  std::string out(text.substr(0, byte_of(text, head)));
  return out.append("…").append(text.substr(byte_of(text, have - tail)));
}

std::string wrap(std::string_view text, size_t width, size_t indent) {
  std::string out;
  size_t column = 0;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    const size_t size = display_width(word);
    if (column > 0 && column + 1 + size > width) {
      out.append("\n").append(indent, ' ');
      column = 0;
    } else if (column > 0) {
      out.append(" ");
      ++column;
    }
    out.append(word);
    column += size;
  }
  return out;
}

}  // namespace canzona

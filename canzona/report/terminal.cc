#include "canzona/report/terminal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report {
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

// Returns the position after the colour code that starts at `at`.
size_t skip_code(std::string_view text, size_t at) {
  const size_t end = text.find('m', at);
  return end == std::string_view::npos ? text.size() : end + 1;
}

// Returns the byte at which character number `n` starts.
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

std::string labelled(const Ink& ink, std::string_view name,
                     std::string_view text, size_t column) {
  return "  " + ink(Tone::kDim, pad_right(name, column)) +
         wrap(text, kPageWidth - column - 2, column + 2) + "\n";
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (size_t at = 0; at < text.size();)
    if (text[at] == kEscape)
      at = skip_code(text, at);
    else
      width += starts_character(text[at++]) ? 1 : 0;
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

namespace {

constexpr size_t kGap = 2;
constexpr size_t kLeastFlexible = 12;

void widen(std::vector<size_t>& widths, const std::vector<std::string>& cells) {
  for (size_t c = 0; c < cells.size(); ++c)
    widths[c] = std::max(widths[c], display_width(cells[c]));
}

}  // namespace

Table& Table::header(std::vector<std::string> cells) {
  CANZONA_CHECK_EQ(cells.size(), columns_.size(), "cells of a table's header");
  header_ = std::move(cells);
  return *this;
}

Table& Table::row(std::vector<std::string> cells) {
  CANZONA_CHECK_EQ(cells.size(), columns_.size(), "cells of a table's row");
  rows_.push_back(std::move(cells));
  return *this;
}

std::vector<size_t> Table::widths(size_t indent, size_t page) const {
  std::vector<size_t> widths(columns_.size(), 0);
  widen(widths, header_);
  for (const auto& cells : rows_) widen(widths, cells);
  size_t total = std::accumulate(widths.begin(), widths.end(),
                                 indent + kGap * (widths.size() - 1));
  const size_t optional = columns_.find('?');
  if (total > page && optional != std::string::npos) {
    total -= widths[optional] + kGap;
    widths[optional] = 0;
  }
  const size_t flexible = columns_.find('~');
  if (total > page && flexible != std::string::npos) {
    const size_t excess = total - page;
    size_t& width = widths[flexible];
    width = std::max(kLeastFlexible, width > excess ? width - excess : 0);
  }
  return widths;
}

std::string Table::line(const std::vector<std::string>& cells,
                        const std::vector<size_t>& widths,
                        size_t indent) const {
  std::string out(indent, ' ');
  for (size_t c = 0; c < cells.size(); ++c) {
    if (columns_[c] == '?' && widths[c] == 0) continue;
    if (c > 0) out.append(kGap, ' ');
    if (columns_[c] == '>')
      out += pad_left(cells[c], widths[c]);
    else if (columns_[c] == '~')
      out += pad_right(shorten(cells[c], widths[c]), widths[c]);
    else
      out += pad_right(cells[c], widths[c]);
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

std::string Table::text(const Ink& ink, size_t indent) const {
  const std::vector<size_t> columns = widths(indent, ink.width());
  std::string out;
  if (!header_.empty()) {
    const std::string titles = line(header_, columns, indent);
    out += ink(Tone::kDim, titles.substr(0, titles.size() - 1)) + "\n";
  }
  for (const auto& cells : rows_) out += line(cells, columns, indent);
  return out;
}

namespace {

constexpr size_t kMaxSingleBars = 16;
constexpr size_t kBarWidth = 40;
constexpr size_t kRowWidth = 64;
constexpr size_t kMaxRows = 16;

// Eighths of a column, from the left; and of a line, from below.
constexpr std::array<const char*, 8> kAcross = {"",  "▏", "▎", "▍",
                                                "▌", "▋", "▊", "▉"};
constexpr std::array<const char*, 9> kUpward = {"·", "▁", "▂", "▃", "▄",
                                                "▅", "▆", "▇", "█"};

int64_t eighths(double value, double full, size_t width) {
  if (!(value > 0) || !(full > 0)) return 0;
  const double exact = value / full * static_cast<double>(width) * 8;
  return std::max<int64_t>(1, std::llround(std::min(exact, 8e6)));
}

std::string single_bars(const LoadPicture& p, double full, const Ink& ink) {
  Table table("<><");
  for (size_t r = 0; r < p.loads.size(); ++r) {
    const double ratio = p.mean > 0 ? p.loads[r] / p.mean : 0;
    table.row({fmt::format("{} {}", p.what, r), ratio_text(ratio),
               ink(tone_of_ratio(ratio), bar(p.loads[r], full, kBarWidth))});
  }
  return table.text(ink);
}

// Returns the largest of each run of `share` values.
std::vector<double> shared(std::span<const double> loads, size_t share) {
  std::vector<double> out;
  for (size_t at = 0; at < loads.size(); at += share) {
    const auto run = loads.subspan(at, std::min(share, loads.size() - at));
    out.push_back(*std::max_element(run.begin(), run.end()));
  }
  return out;
}

size_t row_length(size_t unit) {
  return unit > kRowWidth ? kRowWidth : kRowWidth / unit * unit;
}

std::string rows_of_bars(const LoadPicture& p, double full, const Ink& ink) {
  const size_t row = row_length(static_cast<size_t>(std::max(1, p.row_unit)));
  const size_t room = row * kMaxRows;
  const size_t share = (p.loads.size() + room - 1) / room;
  const std::vector<double> cells = shared(p.loads, share);
  const size_t digits = fmt::format("{}", p.loads.size()).size();
  std::string out;
  for (size_t at = 0; at < cells.size(); at += row) {
    const auto run =
        std::span(cells).subspan(at, std::min(row, cells.size() - at));
    out += fmt::format("  {} {:>{}}  ", p.what, at * share, digits);
    out += ink(Tone::kAccent, upright_bars(run, full)) + "\n";
  }
  if (share > 1) {
    out += ink(Tone::kDim, fmt::format("  one block is the largest of {} {}s\n",
                                       share, p.what));
  }
  return out;
}

}  // namespace

std::string bar(double value, double full, size_t width) {
  const auto most = static_cast<int64_t>(width) * 8;
  const int64_t length = eighths(value, full, width);
  const bool cut_off = length > most;
  const int64_t shown = cut_off ? most - 8 : length;
  std::string out;
  for (int64_t i = 0; i < shown / 8; ++i) out += "█";
  out += kAcross[static_cast<size_t>(shown % 8)];
  return cut_off ? out + "»" : out;
}

std::string upright_bars(std::span<const double> values, double full) {
  std::string out;
  for (const double value : values) {
    const int64_t level = std::min<int64_t>(8, eighths(value, full, 1));
    out += kUpward[static_cast<size_t>(level)];
  }
  return out;
}

std::string load_picture(const LoadPicture& picture, const Ink& ink) {
  if (picture.loads.empty()) return "";
  const auto loads = picture.loads;
  const double full = *std::max_element(loads.begin(), loads.end());
  return loads.size() <= kMaxSingleBars ? single_bars(picture, full, ink)
                                        : rows_of_bars(picture, full, ink);
}

Tone tone_of_ratio(double ratio) {
  if (ratio <= 1.05) return Tone::kGood;
  return ratio <= 1.5 ? Tone::kFair : Tone::kPoor;
}

}  // namespace canzona::report

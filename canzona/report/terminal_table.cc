#include "canzona/report/terminal_table.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/check.h"

namespace canzona {
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

std::vector<size_t> Table::widths(size_t indent) const {
  std::vector<size_t> widths(columns_.size(), 0);
  widen(widths, header_);
  for (const auto& cells : rows_) widen(widths, cells);
  const size_t total = std::accumulate(widths.begin(), widths.end(),
                                       indent + kGap * (widths.size() - 1));
  const size_t flexible = columns_.find('~');
  if (total > kPageWidth && flexible != std::string::npos) {
    const size_t excess = total - kPageWidth;
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
    if (c > 0) out.append(kGap, ' ');
    if (columns_[c] == '>') {
      out += pad_left(cells[c], widths[c]);
    } else if (columns_[c] == '~') {
      out += pad_right(shorten(cells[c], widths[c]), widths[c]);
    } else {
      out += pad_right(cells[c], widths[c]);
    }
  }
  out.erase(out.find_last_not_of(' ') + 1);
  return out + "\n";
}

std::string Table::text(const Ink& ink, size_t indent) const {
  const std::vector<size_t> columns = widths(indent);
  std::string out;
  if (!header_.empty()) {
    const std::string titles = line(header_, columns, indent);
    out += ink(Tone::kDim, titles.substr(0, titles.size() - 1)) + "\n";
  }
  for (const auto& cells : rows_) out += line(cells, columns, indent);
  return out;
}

}  // namespace canzona

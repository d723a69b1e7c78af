// A table of aligned columns for the terminal.
//
//   Table table("<>>");                       // left, right, right
//   table.header({"kind", "max", "mean"});
//   table.row({"states", "1.2 GiB", "1.1 GiB"});
//   std::string text = table.text(ink);
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canzona/report/terminal_style.h"

namespace canzona {

class Table {
 public:
  // One letter per column: '<' left, '>' right, '~' left and shortened where
  // the page is too narrow. Cells may be coloured, except those of a '~'
  // column.
  explicit Table(std::string_view columns) : columns_(columns) {}

  Table& header(std::vector<std::string> cells);
  Table& row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // Every line starts with `indent` spaces and ends without any.
  std::string text(const Ink& ink, size_t indent = 2) const;

 private:
  std::vector<size_t> widths(size_t indent) const;
  std::string line(const std::vector<std::string>& cells,
                   const std::vector<size_t>& widths, size_t indent) const;

  std::string columns_;
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace canzona

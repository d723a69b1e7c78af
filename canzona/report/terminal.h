// The terminal views are made of coloured text, tables and bars.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/rooms.h"

namespace canzona::report {

// Text for a terminal: colours that can be switched off, and widths that count
// visible columns.
//
//   Ink ink(true);
//   std::string title = ink(Tone::kBold, "Balance");
//   std::string cell = pad_left("1.002", 8);
//
// Everything here takes and returns UTF-8 and may be called from any thread.

// No text is wider than this, so that it fits any window and can be pasted into
// a page. Tables use the whole width of a wider window.
inline constexpr size_t kPageWidth = 100;
// The width of a pipe or a file: nothing is cut.
inline constexpr size_t kAnyWidth = 1 << 20;

enum class Tone { kPlain, kBold, kDim, kAccent, kGood, kFair, kPoor };

// Colours text, or leaves it unchanged; knows how wide a table may be.
class Ink {
 public:
  explicit Ink(bool colour = false, size_t width = kPageWidth)
      : colour_(colour), width_(width) {}
  bool colour() const { return colour_; }
  size_t width() const { return width_; }
  std::string operator()(Tone tone, std::string_view text) const;

 private:
  bool colour_;
  size_t width_;
};

// "  name      text": the text wrapped beside a dim name of `column` columns.
std::string labelled(const Ink& ink, std::string_view name,
                     std::string_view text, size_t column);

// Returns the columns that `text` takes on a terminal; colour codes take none.
size_t display_width(std::string_view text);

// Pad with spaces up to `width` columns; never cut.
std::string pad_left(std::string_view text, size_t width);
std::string pad_right(std::string_view text, size_t width);

// Cuts out the middle of `text` (which has no colour codes) if it is wider than
// `width`: both ends of a tensor's name matter.
std::string shorten(std::string_view text, size_t width);

// Breaks at spaces so that no line is wider than `width`; lines after the first
// start with `indent` spaces, which do not count.
std::string wrap(std::string_view text, size_t width, size_t indent);

// A table of aligned columns for the terminal.
//
//   Table table("<>>");                       // left, right, right
//   table.header({"kind", "max", "mean"});
//   table.row({"states", "1.2 GiB", "1.1 GiB"});
//   std::string text = table.text(ink);
class Table {
 public:
  // One letter per column: '<' left, '>' right, '~' left and shortened where
  // the ink's width is too small, '?' left and then left out. Cells may be
  // coloured, except those of a '~' column.
  explicit Table(std::string_view columns) : columns_(columns) {}

  Table& header(std::vector<std::string> cells);
  Table& row(std::vector<std::string> cells);
  bool empty() const { return rows_.empty(); }

  // Every line starts with `indent` spaces and has no trailing ones.
  std::string text(const Ink& ink, size_t indent = 2) const;

 private:
  std::vector<size_t> widths(size_t indent, size_t page) const;
  // A column of width 0 is left out.
  std::string line(const std::vector<std::string>& cells,
                   const std::vector<size_t>& widths, size_t indent) const;

  std::string columns_;
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// Bars made of Unicode blocks.
//
//   bar(0.5, 1.0, 8)           "████"
//   upright_bars({1, 2, 4}, 4) "▂▄█"

// Returns a bar of value/full × width columns, in eighths of a column. A value
// above zero shows at least an eighth; one above `full` fills the width and
// ends in '»'.
std::string bar(double value, double full, size_t width);

// One character per value, in eighths of a line; '·' stands for zero.
std::string upright_bars(std::span<const double> values, double full);

// Draws the load of every rank. Up to 16 ranks get a bar each; more become
// upright bars, one character per rank, in rows that start at a multiple of
// `row_unit`. Many thousands of ranks share characters, each of which shows the
// largest of its ranks.
struct LoadPicture {
  std::span<const double> loads;
  double mean = 0;
  int32_t row_unit = 1;  // tp, so that a row never splits a home
  const char* what = "rank";
};
std::string load_picture(const LoadPicture& picture, const Ink& ink);

// Returns the tone for a ratio whose best value is 1.
Tone tone_of_ratio(double ratio);

}  // namespace canzona::report

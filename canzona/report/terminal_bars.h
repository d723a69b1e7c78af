// Bars and strips made of Unicode blocks.
//
//   bar(0.5, 1.0, 8)           "████"
//   strip({1, 2, 4}, 4)        "▂▄█"
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "canzona/report/terminal_style.h"

namespace canzona {

// A bar of value/full × width columns, in eighths of a column. A value above
// zero shows at least an eighth; one above `full` fills the width and ends
// in '»'.
std::string bar(double value, double full, size_t width);

// One character per value, in eighths of a line; '·' stands for zero.
std::string strip(std::span<const double> values, double full);

// The load of every rank. Up to 16 ranks get a bar each; more become strips,
// one character per rank, in rows that start at a multiple of `row_unit`; many
// thousands share characters, each showing the largest of its ranks.
struct LoadPicture {
  std::span<const double> loads;
  double mean = 0;
  int32_t row_unit = 1;  // tp, so that a home is not torn between two rows
  const char* what = "rank";
};
std::string load_picture(const LoadPicture& picture, const Ink& ink);

// The tone for a ratio whose best value is 1.
Tone tone_of_ratio(double ratio);

}  // namespace canzona

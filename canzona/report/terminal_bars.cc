#include "canzona/report/terminal_bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "canzona/report/numbers.h"
#include "canzona/report/terminal_table.h"

namespace canzona {
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

// The largest of each run of `share` values.
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

std::string strips(const LoadPicture& p, double full, const Ink& ink) {
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
    out += ink(Tone::kAccent, strip(run, full)) + "\n";
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

std::string strip(std::span<const double> values, double full) {
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
                                        : strips(picture, full, ink);
}

Tone tone_of_ratio(double ratio) {
  if (ratio <= 1.05) return Tone::kGood;
  return ratio <= 1.5 ? Tone::kFair : Tone::kPoor;
}

}  // namespace canzona

#include "cli/kept_metrics.h"

#include <algorithm>
#include <optional>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::cli {
namespace {

// Parses a line, giving step 0 for an empty one; returns nothing if it cannot
// be parsed.
std::optional<StepMetrics> metrics_of_line(std::string_view line) {
  try {
    const std::vector<StepMetrics> read = read_metrics(line, "");
    return read.empty() ? StepMetrics{} : read.front();
  } catch (const UsageError&) {
    return std::nullopt;
  }
}

}  // namespace

KeptMetrics metrics_until(const std::string& text, int64_t step) {
  KeptMetrics kept;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t stop = std::min(text.find('\n', begin), text.size());
    const bool is_cut = stop == text.size();
    const std::string line = text.substr(begin, stop - begin) + "\n";
    begin = stop + 1;
    ++number;
    const std::optional<StepMetrics> read = metrics_of_line(line);
    if (!read && is_cut) break;  // the step of a killed run
    // Lines of an earlier start may precede those of a later one.
    if (read && read->step > step) continue;
    if (!read || kept.left_out > 0) {
      // The rest may not belong to this run.
      if (kept.left_out++ == 0) kept.odd_line = number;
      continue;
    }
    if (read->step > 0)
      kept.add(line, *read);
    else
      kept.text += line;
  }
  return kept;
}

std::string missing_steps(const KeptMetrics& kept, int64_t step) {
  int64_t next = kept.lines.empty() ? 1 : kept.lines.front().step;
  for (const KeptMetrics::Line& line : kept.lines) {
    if (line.step > next) break;
    next = line.step + 1;
  }
  if (next > step) return "";
  const auto after = std::ranges::find_if(
      kept.lines,
      [&](const KeptMetrics::Line& line) { return line.step > next; });
  const int64_t last = after == kept.lines.end() ? step : after->step - 1;
  return last == next ? cat("step ", next, " is missing")
                      : cat("steps ", next, " to ", last, " are missing");
}

}  // namespace canzona::cli

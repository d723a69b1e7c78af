// The lines of metrics.jsonl that a resumed run keeps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/trace/run_summary.h"

namespace canzona::cli {

// The lines up to a step. They end before a line that cannot be parsed, which a
// power loss may have left; a last line without newline is complete if it can
// be parsed.
struct KeptMetrics {
  struct Line {
    size_t begin = 0;  // offset in the text
    int64_t step = 0;
    bool is_evaluated = false;
  };
  std::string text;
  std::vector<Line> lines;
  int64_t left_out = 0;  // lines dropped, from the first that cannot be parsed
  int64_t odd_line = 0;  // number of that line

  // A file written by two starts may have a step twice: the later line is that
  // of the start whose checkpoint the run resumes from.
  void add(std::string_view line, const StepMetrics& read) {
    while (!lines.empty() && lines.back().step >= read.step) {
      text.resize(lines.back().begin);
      lines.pop_back();
    }
    lines.push_back({text.size(), read.step, read.eval_loss.has_value()});
    text += line;
  }
};
KeptMetrics metrics_until(const std::string& text, int64_t step);

// Returns "steps 2 to 3 are missing" for the first gap, if the lines do not
// cover every step; "" if they do. A run may have begun from another's
// checkpoint, so its first line may be of a later step.
std::string missing_steps(const KeptMetrics& kept, int64_t step);

}  // namespace canzona::cli

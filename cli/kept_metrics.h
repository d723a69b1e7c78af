// The lines of metrics.jsonl that a run keeps when it goes on after a step.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/trace/step_metrics.h"

namespace canzona::cli {

// The lines up to a step. They end before one that makes no sense, as a machine
// that lost power may have left it; a last one that lacks its newline is whole
// if it makes sense.
struct KeptMetrics {
  struct Line {
    size_t begin = 0;  // in the text
    int64_t step = 0;
    bool is_evaluated = false;
  };
  std::string text;
  std::vector<Line> lines;
  int64_t left_out = 0;  // lines, from the one that makes no sense,
  int64_t odd_line = 0;  // which has this number

  // A file that two starts have written to may tell of a step twice: the later
  // line is that of the start whose checkpoint the run goes on from.
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

// "steps 2 to 3 are missing": the first ones, if the lines do not tell of every
// step; "" if they do. A run may have begun with another's checkpoint: then its
// first line is of a later step.
std::string missing_steps(const KeptMetrics& kept, int64_t step);

}  // namespace canzona::cli

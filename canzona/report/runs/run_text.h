// Runs on the terminal and as JSON.
//
//   std::string text = runs_text(compare_runs(runs, 0), ink);
//   std::string json = runs_json(compare_runs(runs, 0));
#pragma once

#include <span>
#include <string>

#include "canzona/report/runs/comparison.h"
#include "canzona/report/terminal_style.h"

namespace canzona {

std::string runs_text(const ComparedRuns& all, const Ink& ink);

// One object; its members are described in docs/runs.md.
std::string runs_json(const ComparedRuns& all);

// A curve of `width` characters, from the lowest value to the highest.
std::string sparkline(std::span<const double> values, size_t width);

}  // namespace canzona

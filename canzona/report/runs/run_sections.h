// The sections of the HTML report on runs, in the order of the page, and what
// they share.
#pragma once

#include <string>

#include "canzona/report/html.h"
#include "canzona/report/runs/line_chart.h"
#include "canzona/report/runs/run_report.h"

namespace canzona {

void add_run_headline(Html& out, const RunView& view);
void add_run_table(Html& out, const RunView& view);  // several runs only
void add_losses(Html& out, const RunView& view);
void add_optimization(Html& out, const RunView& view);
void add_times(Html& out, const RunView& view);
void add_run_memory(Html& out, const RunView& view);
void add_run_plan(Html& out, const RunView& view);
void add_configuration(Html& out, const RunView& view);
void add_environment(Html& out, const RunView& view);
void add_run_words(Html& out);

std::string_view run_style();

// "s0" … for run `i`; colours come again after the sixth.
std::string color_of(size_t run);

// "2.3456"; "–" where it is not known.
std::string loss_text(double loss);
// "0.71 ×".
std::string times_text(double ratio);
// "34.5 %"; "–" where it is not known.
std::string mfu_text(double mfu);
// Says why evaluation losses cannot be compared; "" if they can.
std::string evaluations_remark(const std::vector<TrainingRun>& runs);
// "7 of 8 steps were skipped …, in step 8 the gradient of …"; "" if none was.
std::string skipped_remark(const TrainingRun& run);

// Curves that tell the runs apart, thinned to what can be seen.
Points drawn_line(const Points& points);

}  // namespace canzona

// A training run while it runs: a line per step, and on a terminal a bar with
// the time that is left.
//
//   out.result(step_line(metrics, total_steps) + "\n");
//   out.progress(progress_line({metrics.step, total_steps, seconds, loss}));
//
// Pure; may be called from any thread.
#pragma once

#include <cstdint>
#include <string>

#include "canzona/report/terminal.h"
#include "canzona/trace/run_summary.h"

namespace canzona::report {

// Returns "step:  10  loss:  4.1234  grad_norm:  1.23  lr: 1.0e-03  …"; columns
// stay aligned up to `total_steps`. The line of a skipped step says so, and
// names the gradient that caused it.
std::string step_line(const StepMetrics& metrics, int64_t total_steps,
                      const Ink& ink = Ink());

// "step:  10  eval_loss:  4.2500  perplexity:  70.11"; follows the step's line.
std::string evaluation_line(int64_t step, double eval_loss, int64_t total_steps,
                            const Ink& ink = Ink());

struct SavedText {
  int64_t step = 0;
  int64_t bytes = 0;
  double seconds = 0;
  double pause_seconds = 0;  // for which the step waited
};

// "step:  10  saved 48.00 MiB in 300 ms, paused for 4.00 ms"
std::string saved_line(const SavedText& saved, int64_t total_steps,
                       const Ink& ink = Ink());

// "the gradient of layers.0.q was not finite on rank 3", or "… in the sum over
// ranks" if `rank` is -1.
std::string nonfinite_text(const std::string& tensor, int64_t rank);

// "the loss of step 41 was 8.1000, 162 times the median of those before it,
// 0.0500"
std::string spike_text(int64_t step, double loss, double over);

// "2 of 60 steps had a loss that is a spike; …" with the last spike; "" if
// there was none.
std::string spikes_text(const RunSummary& summary);

// "rank 2 was late by 203 ms in a step: …"; "" if none was.
std::string late_text(const RunSummary& summary);

// 70.1 → "70.11"; "–" if it is not known or too large to show.
std::string perplexity_text(double eval_loss);

struct TrainProgress {
  int64_t step = 0;  // done
  int64_t total_steps = 0;
  double seconds = 0;  // since the first step began
  double loss = 0;
};

// "[████▎          ] 87/200  loss 2.345  3.2 steps/s  ETA 0:35", at most
// `width` columns.
std::string progress_line(const TrainProgress& progress, size_t width = 79);

// Returns the lines at the end of a run. `report`: its path, "" if there is
// none.
std::string closing_lines(const RunSummary& summary, const std::string& report);

// 75 → "1:15"; 4000 → "1:06:40".
std::string clock_text(double seconds);

}  // namespace canzona::report

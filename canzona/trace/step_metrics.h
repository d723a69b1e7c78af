// StepMetrics are the line of a training step in metrics.jsonl.
//
//   file << json_line(metrics) << '\n';
//   std::vector<StepMetrics> steps = read_metrics(text, "metrics.jsonl");
//
// A reader ignores unknown members and a last line that was cut off.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace canzona {

struct StepMetrics {
  int64_t step = 0;  // 1, 2, …
  double loss = 0;
  double grad_norm = 0;  // before clipping
  double lr = 0;
  double tokens_per_second = 0;
  double optimizer_ms = 0;
  double comm_ms = 0;          // how long links were busy, on the busiest rank
  double hidden_fraction = 1;  // 1 − time compute waited / time links were busy
  int64_t memory_bytes = 0;    // reserved by the rank with the most
  int64_t tokens = 0;          // consumed so far
  double seconds = 0;          // since the first step began
  bool skipped = false;        // a gradient was not finite
  // After a skipped step: the tensor whose gradient was not finite, and the
  // rank that had it; -1 if it was finite on every rank and only the sum is
  // not.
  std::string nonfinite_tensor = {};
  int64_t nonfinite_rank = -1;
  // For a step whose loss is a spike: the median of the losses before it.
  std::optional<double> spike_over = {};
  // Model flop/s relative to the rate of matrix products alone, if that is
  // known.
  std::optional<double> mfu = {};
  std::optional<double> eval_loss = {};  // if it was measured after the step
};

// Returns e to the loss: the number of equally likely tokens that the model is
// choosing from.
inline double perplexity_of(double loss) { return std::exp(loss); }

std::string json_line(const StepMetrics& metrics);
// Returns what an evaluation adds to the line of its step after it was written:
// it replaces the last brace.
std::string evaluation_tail(double eval_loss);
// UsageError names the file, the line, what was expected and what came.
std::vector<StepMetrics> read_metrics(std::string_view text,
                                      const std::string& file);

}  // namespace canzona

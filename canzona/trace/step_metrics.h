// StepMetrics are a training step as a line of metrics.jsonl.
//
//   file << json_line(metrics) << '\n';
//   std::vector<StepMetrics> steps = read_metrics(text, "metrics.jsonl");
//
// A reader ignores members it does not know and a last line that was cut off.
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
  double comm_ms = 0;          // links were busy, the busiest rank
  double hidden_fraction = 1;  // 1 − time compute waited / time links were busy
  int64_t memory_bytes = 0;    // reserved by the fullest rank
  int64_t tokens = 0;          // consumed so far
  double seconds = 0;          // since the first step began
  bool skipped = false;        // a gradient was not finite
  // After a skipped step: whose gradient it was, and the rank that had it; -1
  // if every rank's was finite and only their sum is not.
  std::string nonfinite_tensor = {};
  int64_t nonfinite_rank = -1;
  // For a step whose loss is a spike: the median of the losses before it.
  std::optional<double> spike_over = {};
  // Flops of the model over those of products alone, where their rate is known.
  std::optional<double> mfu = {};
  std::optional<double> eval_loss = {};  // where it was measured after the step
};

// e to the loss: among how many tokens the model hesitates.
inline double perplexity_of(double loss) { return std::exp(loss); }

std::string json_line(const StepMetrics& metrics);
// Returns what an evaluation adds to the line of its step, for a writer that
// has written it before: it replaces the last brace.
std::string evaluation_tail(double eval_loss);
// UsageError names the file, the line, what was expected and what came.
std::vector<StepMetrics> read_metrics(std::string_view text,
                                      const std::string& file);

}  // namespace canzona

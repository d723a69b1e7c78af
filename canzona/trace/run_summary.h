// A RunSummary is the summary.json of a training run. It is written when the
// run begins, with the state "running", and rewritten at its end.
//
//   RunSummary summary;
//   summary.steps = 200;
//   …
//   write_file(folder + "/summary.json", to_json(summary));
//   RunSummary read = read_summary(text, "summary.json");
//
// docs/runs.md lists the members. A reader ignores unknown members; members
// that were added later may be missing in old files.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_reader.h"
#include "canzona/base/rooms.h"

namespace canzona::trace {

// StepMetrics are the line of a training step in metrics.jsonl.
//
//   file << json_line(metrics) << '\n';
//   std::vector<StepMetrics> steps = read_metrics(text, "metrics.jsonl");
//
// A reader ignores unknown members and a last line that was cut off.
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
  // With QK-clip, if the step was not skipped: the largest logit of attention
  // before it, and how many heads were clipped after it.
  std::optional<double> largest_logit = {};
  std::optional<int64_t> clipped_heads = {};
  // Model flop/s, and their share of the rate of matrix products alone, if that
  // is known: on a CPU as measured, on a GPU its nominal peak.
  std::optional<double> flops_per_second = {};
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

// Figures of one rank over all steps. forward_backward, optimizer, waited and
// other add up to the run's seconds; link time overlaps them.
struct RankSummary {
  int32_t rank = 0;
  double forward_backward_seconds = 0;
  double optimizer_seconds = 0;
  double waited_seconds = 0;  // for other ranks
  double comm_busy_seconds = 0;
  double other_seconds = 0;
  int64_t predicted_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t owned_matrices = -1;  // -1: not known
  double load = 0;  // planned matrix work relative to the mean; 0: not known
  // Bytes sent per step, inside the node and to other nodes; -1: not known.
  int64_t fast_bytes_per_step = -1;
  int64_t slow_bytes_per_step = -1;
  // How much longer its own work took than that of the median rank; 0 for ranks
  // that were faster.
  double late_seconds_per_step = 0;
};

struct RunEnvironment {
  std::string host;
  std::string cpu;
  int64_t cores = 0;
  std::string blas;
  std::string gpu =
      {};  // with its libraries and algorithms; "": a CPU computed
  std::string version;
  std::string commit;
};

struct RunSummary {
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

  int64_t steps = 0;
  int64_t tokens = 0;  // consumed globally: the position in the data
  double seconds = 0;
  double final_loss = kNone;  // of the last step
  double eval_loss = kNone;   // after the last step
  std::string digest;         // of the parameters
  std::string state_digest;   // of the optimizer's states
  // SHA-256 of model.safetensors; "": none was written, or not known.
  std::string weights_sha256;
  Json config = Json::object();

  // "running" (or killed), "finished", "stopped" by a signal, or "diverged":
  // too many steps in a row were skipped, or the last loss was a spike.
  std::string state = "finished";
  bool interrupted = false;  // ended before its last step
  int64_t pid = 0;           // of the writing process; 0: not known
  std::string started;       // "2026-01-31T12:00:00Z"
  int64_t skipped_steps = 0;
  int64_t starts = 1;             // times started: once, plus resumes
  int64_t start_step = 0;         // steps done before its last start
  int64_t saves = 0;              // checkpoints since then
  int64_t saved_step = -1;        // the last one; -1: none
  double save_pause_seconds = 0;  // how long steps waited for them
  std::string save_failure;       // why the last one failed; "" if it did not
  // The rank whose own work took longest, if the others had to wait noticeably
  // for it, and by how much per step; -1: none.
  int64_t late_rank = -1;
  double late_seconds_per_step = 0;
  // The last step that was skipped, as in StepMetrics.
  std::string nonfinite_tensor;
  int64_t nonfinite_rank = -1;
  // The number of steps whose loss was a spike; for the last of them its number
  // (-1: there was none), its loss and the median of the losses before it.
  int64_t spikes = 0;
  int64_t spike_step = -1;
  double spike_loss = kNone;
  double spike_over = kNone;
  int64_t eval_sequences = 0;  // of the last evaluation
  double flops_per_token = 0;  // of the model, forward and backward
  // Flop/s of matrix products alone, all ranks together; 0: not known.
  double product_flops_per_second = 0;
  std::vector<std::string> notes;  // for the user, about the files
  std::string model;               // "tiny"
  int64_t parameters = 0;
  std::string mesh;  // "dp=2,tp=2"
  int64_t ranks = 1;
  std::string transport;  // "thread", "mpi" or "tcp"
  std::string rule;
  std::string precision;      // "bf16"; empty: the rule has none, or not known
  std::string precision_why;  // "auto: AMX"
  std::string strategy;
  std::string plan_digest;
  std::string zero;                   // "z1=4,z2=2,z3=2"
  std::string overlap;                // "background"
  double predicted_step_seconds = 0;  // of the optimizer; 0: not known
  std::string data;                   // description of the data
  std::string data_digest;
  RunEnvironment environment;
  std::vector<RankSummary> per_rank;

  bool has_ended() const { return state != "running"; }
  bool has_ended_by_spike() const {
    return state == "diverged" && spike_step == steps;
  }
  // The steps that the ranks' times cover.
  int64_t steps_since_start() const { return steps - start_step; }
  double tokens_per_second() const {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
  }
  // Over the whole run, evaluations included; kNone without a measured rate.
  double mfu() const {
    return product_flops_per_second > 0
               ? tokens_per_second() * flops_per_token /
                     product_flops_per_second
               : kNone;
  }
};

// Finds late ranks from the ranks' times and the steps since the start: how
// much the own work of a rank in a step exceeds that of the median rank (the
// lower one if their number is even), on average. A rank is named if that is a
// tenth of a step or more.
void find_late_ranks(RunSummary& summary);

// Returns lines of text, with members in a fixed order.
std::string to_json(const RunSummary& summary);
// UsageError names the file, the member, what was expected and what came.
RunSummary read_summary(std::string_view text, const std::string& file);

}  // namespace canzona::trace

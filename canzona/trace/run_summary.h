// A RunSummary is a training run as summary.json: written when it begins, with
// the state "running", and anew at its end.
//
//   RunSummary summary;
//   summary.steps = 200;
//   …
//   write_file(folder + "/summary.json", to_json(summary));
//   RunSummary read = read_summary(text, "summary.json");
//
// docs/runs.md lists the members. A reader ignores members it does not know;
// those that came later than the first files may be missing. Plain values.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_reader.h"

namespace canzona {

// Figures of one rank, over all steps. forward_backward, optimizer, waited and
// other add up to the run's seconds; the links are busy beside them.
struct RankSummary {
  int32_t rank = 0;
  double forward_backward_seconds = 0;
  double optimizer_seconds = 0;
  double waited_seconds = 0;  // for what other ranks send
  double comm_busy_seconds = 0;
  double other_seconds = 0;
  int64_t predicted_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t owned_matrices = -1;  // -1: not known
  double load = 0;  // planned matrix work over the mean; 0: not known
  // Sent in a step, inside the node and to others; -1: not known.
  int64_t fast_bytes_per_step = -1;
  int64_t slow_bytes_per_step = -1;
  // The time that its own work took longer than that of the middle rank; 0 for
  // those that were faster.
  double late_seconds_per_step = 0;
};

struct RunEnvironment {
  std::string host;
  std::string cpu;
  int64_t cores = 0;
  std::string blas;
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

  // "running" (or killed), "finished", "stopped" by a signal, "diverged": too
  // many steps in a row were skipped, or the last one's loss was a spike.
  std::string state = "finished";
  bool interrupted = false;  // ended before its last step
  int64_t pid = 0;           // of the process that writes; 0: not known
  std::string started;       // "2026-01-31T12:00:00Z"
  int64_t skipped_steps = 0;
  int64_t starts = 1;       // the run was started so often: once, and resumed
  int64_t start_step = 0;   // steps done before its last start
  int64_t saves = 0;        // checkpoints since then
  int64_t saved_step = -1;  // the last one; -1: none
  double save_pause_seconds = 0;  // that steps waited for them
  std::string save_failure;       // why the last one failed; "": it did not
  // The rank whose own work took longest, if the others had to wait for it
  // noticeably, and by how much in a step; -1: none.
  int64_t late_rank = -1;
  double late_seconds_per_step = 0;
  // The last step that was skipped, as in StepMetrics.
  std::string nonfinite_tensor;
  int64_t nonfinite_rank = -1;
  // Steps whose loss was a spike, and of the last of them its number (-1: there
  // was none), its loss and the median of the losses before it.
  int64_t spikes = 0;
  int64_t spike_step = -1;
  double spike_loss = kNone;
  double spike_over = kNone;
  int64_t eval_sequences = 0;  // of the last evaluation
  double flops_per_token = 0;  // of the model, forward and backward
  // The rate of products alone, all ranks together; 0: nobody has measured it.
  double product_flops_per_second = 0;
  std::vector<std::string> notes;  // what the user should know of the files
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
  std::string data;                   // what was read, in words
  std::string data_digest;
  RunEnvironment environment;
  std::vector<RankSummary> per_rank;

  bool has_ended() const { return state != "running"; }
  bool has_ended_by_spike() const {
    return state == "diverged" && spike_step == steps;
  }
  // That the times of the ranks are of.
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

// Fills in who was late, from the times of the ranks and the steps since the
// start: by how much the own work of a rank in a step is above that of the
// middle rank (of an even number, the lower one), on average. A rank is named
// if that is a tenth of a step or more.
void find_late_ranks(RunSummary& summary);

// Lines of text, members in a fixed order.
std::string to_json(const RunSummary& summary);
// UsageError names the file, the member, what was expected and what came.
RunSummary read_summary(std::string_view text, const std::string& file);

}  // namespace canzona

// Reports a run of `canzona train`, its plan, start, steps and end, to the user
// and to its folder, if it has one.
//
//   Narrator narrator(telling);
//   tell_begin(telling, data, transport);
//   TrainResult result = train(…, &narrator);
//   tell_end(narrator.summary_of(result), telling);
//
// Only on rank 0; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "canzona/data/token_source.h"
#include "canzona/report/document.h"
#include "canzona/trace/run_summary.h"
#include "canzona/train/trainer.h"
#include "cli/output.h"
#include "cli/run_folder.h"
#include "cli/train_job.h"

namespace canzona::cli {

// What is printed of a run before it starts, with --dry-run, and at its end.

// Describes how the run is cut and what that sends; "" for plain ZeRO-1.
std::string zero_line(const TrainJob& job);

// Shows the plan for --dry-run. Tokens are opened, counted and checked, but not
// used for training. The configuration must outlive the document.
Document dry_run_view(const TrainConfig& config, const TrainJob& job,
                      const TokenSource& tokens);

// Describes what is going to run: everything but the result, with the state
// "running".
RunSummary describe_run(const TrainConfig& config, const TrainJob& job,
                        const TokenSource& tokens,
                        const std::string& transport);
// The same with the result, in the state in which the run ended.
RunSummary with_result(RunSummary summary, const TrainJob& job,
                       const TrainResult& result);

// A run with what it began with, and where it is reported.
struct Telling {
  const TrainConfig& config;
  const TrainJob& job;
  const RunSummary& begun;
  bool json;
  RunFolder* folder;  // null: none requested
  const std::string& tokenizer;
  const Output& out;
};

// Reports what rank 0 sees to the user and to the folder, if there is one.
class Narrator : public TrainObserver {
 public:
  explicit Narrator(const Telling& telling)
      : telling_(telling), out_(telling.out), folder_(telling.folder) {}

  void on_begin() override;
  void on_resumed(const LoadedState& loaded, const RunState& state) override;
  bool lacks_evaluation() const override;
  void on_saved(const SavedStep& saved) override;
  void on_step(const StepMetrics& metrics) override;
  void on_evaluating(int64_t done, int64_t all) override;
  void on_evaluation(int64_t step, double loss) override;
  void on_tensor(int32_t tensor, std::span<const float> whole) override;
  void on_weights() override;
  void on_result(const TrainResult& so_far) override;

  bool has_resumed() const { return has_resumed_; }
  // "3 records, the first of them of step 5, are missing …"; "" if there are
  // none.
  std::string unrecorded() const;
  RunSummary summary_of(const TrainResult& result) const;

 private:
  template <class Add>
  void record(int64_t step, const Add& add);
  template <class Line>
  void say(const Line& line) const;

  const Telling& telling_;
  const Output& out_;
  RunFolder* folder_;
  bool is_first_ = true;      // no step of this start was reported yet
  bool has_clipped_ = false;  // QK-clip was reported
  bool has_resumed_ = false;
  int64_t num_unrecorded_ = 0;
  int64_t first_unrecorded_ = 0;
  std::string why_unrecorded_;
};

// What the user should know before the first step, and after the last.
void tell_begin(const Telling& telling, const std::string& data,
                const std::string& transport);
void tell_end(const RunSummary& summary, const Telling& telling);

}  // namespace canzona::cli

// A run of `canzona train` tells of itself here: its plan, its beginning, its
// steps, its end; to the user, and to its folder if it has one.
//
//   Narrator narrator(telling);
//   tell_begin(telling, data, transport);
//   TrainResult result = train(…, &narrator);
//   tell_end(narrator.summary_of(result), telling);
//
// Rank 0's alone; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "canzona/data/token_source.h"
#include "canzona/train/trainer.h"
#include "cli/output.h"
#include "cli/run_folder.h"
#include "cli/train_job.h"
#include "cli/train_summary.h"

namespace canzona::cli {

// A run with what it began with, and where it tells of itself.
struct Telling {
  const TrainConfig& config;
  const TrainJob& job;
  const RunSummary& begun;
  bool json;
  RunFolder* folder;  // null: none is asked for
  const std::string& tokenizer;
  const Output& out;
};

// Tells the user and the folder, if there is one, what rank 0 sees.
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
  // "3 records, the first of them of step 5, are missing …"; "": none.
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
  bool is_first_ = true;  // no step of this start was told
  bool has_resumed_ = false;
  int64_t num_unrecorded_ = 0;
  int64_t first_unrecorded_ = 0;
  std::string why_unrecorded_;
};

// Shows the plan for --dry-run. Tokens are opened, counted and checked, though
// none is learned.
void show_plan(const TrainConfig& config, const TrainJob& job,
               const TokenSource& tokens, const Output& out, bool json);

// The user should know this before the first step, and after the last.
void tell_begin(const Telling& telling, const std::string& data,
                const std::string& transport);
void tell_end(const RunSummary& summary, const Telling& telling);

}  // namespace canzona::cli

// The stages of a rank's rounds: carries out the entries of a step that
// compute, on memory that StoredMatrices knows. Who moves data in between is
// the caller's business: the couriers of a runtime, or another library.
//
//   RoundStages stages(stored, engines, rounds, updates);
//   for (const ScheduleEntry& e : entries)
//     if (e.is_compute()) stages.run(e);
//     else if (!is_of_team(e.purpose) || stages.needs(e, step)) … issue it
//
// One thread at a time; everything given must outlive it.
#pragma once

#include <memory>
#include <vector>

#include "canzona/plan/schedule/entries.h"
#include "canzona/plan/schedule/rounds.h"
#include "canzona/plan/schedule/updates.h"
#include "canzona/runtime/step/matrix_stages.h"
#include "canzona/runtime/step/step_engines.h"
#include "canzona/runtime/step/team_stages.h"

namespace canzona::runtime {

class RoundStages {
 public:
  // With `gradients_move`, gradients have other addresses in every step, and so
  // what touches them is not captured.
  RoundStages(const StoredMatrices& stored, const StepEngines& engines,
              const std::vector<Round>& rounds, const UpdatePlan& updates,
              bool gradients_move);

  // Throws UsageError if the engine cannot share a matrix that the plan shares.
  void make_teams();
  // Memory or rules are others from now on.
  void rebind() { teams_.reset(); }

  void run(const ScheduleEntry& entry);
  // True if an exchange of a team is needed in such a step of its tensor; the
  // same on all ranks.
  bool needs(const ScheduleEntry& entry, int64_t step) const;
  // True if the strips of an entry's team are scaled in this step.
  bool is_scaled(const ScheduleEntry& entry);

  const MatrixStages& matrices() const { return stages_; }
  // Returns batches by descending work, so that lanes end together.
  std::vector<int32_t> by_work(const std::vector<UpdateBatch>& batches) const;

 private:
  const SharedMatrix& team_of(const ScheduleEntry& entry) const {
    return rounds_[index(entry.round)].shared[index(entry.shared)];
  }
  void prepare(const Round& round, Run slot);
  void transform(size_t round, int32_t segment, Run slot);
  void apply(const Round& round, Run slot);
  void team_stage(const ScheduleEntry& entry, Run slot);
  template <class Work>
  void touch_gradients(const Work& work) const;

  const StoredMatrices& stored_;
  const StepEngines& engines_;
  const std::vector<Round>& rounds_;
  const UpdatePlan& updates_;
  const bool gradients_move_;
  const MatrixStages stages_;
  std::vector<std::vector<MatrixBatch>> batches_;  // by round
  std::vector<std::vector<int32_t>> orders_;       // of these, by work
  std::unique_ptr<TeamStages> teams_;              // made when first needed
};

}  // namespace canzona::runtime

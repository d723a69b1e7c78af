// Matrices of given storage that several ranks share: who computes which part,
// what that costs each, and the search for such plans.
//
//   StorageShares shares(plan);
//   for (const MatrixShare& share : shares.shares(m)) … share.t, share.cost
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "canzona/plan/storage/storage_plan.h"
#include "canzona/plan/schedule/rounds.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona::plan {

// The parts of matrices, by rank. Follows changes of the plan's owners; the
// plan must outlive it. One thread.
class StorageShares : public ShareTable {
 public:
  explicit StorageShares(const StoragePlan& plan)
      : plan_(plan), of_group_(plan.groups.size()) {}

  // The team of a matrix as a rank of its line sees it; planes are positions in
  // the line.
  SharedMatrix team_in(size_t matrix, const std::vector<int32_t>& line,
                       int32_t rank);

 private:
  MatrixSharing& sharing(size_t matrix) override;
  MatrixShape shape(size_t matrix) const override {
    return {plan_.matrices[matrix].rows, plan_.matrices[matrix].cols};
  }
  std::span<const int32_t> owners(size_t matrix) const override {
    return plan_.matrices[matrix].owners();
  }
  const MatrixCost& whole_cost(size_t matrix) const override {
    return plan_.matrices[matrix].cost;
  }
  int32_t phase(size_t matrix) const override {
    return plan_.matrices[matrix].phase;
  }

  const StoragePlan& plan_;
  std::vector<std::unique_ptr<MatrixSharing>> of_group_;  // made on demand
};

// Returns the elements of a matrix inside `within` that a rank stores.
int64_t elements_within(const StoragePlan& plan, int32_t matrix, int32_t rank,
                        std::span<const Rectangle> within);

// Has ranks share matrices where that is predicted to shorten the step. Rounds
// must have been decided, and are to be decided anew if it returns true.
bool share_storage_matrices(StoragePlan& plan);

// Returns the predicted seconds of every rank's step, mean over a period: what
// it gathers, computes, exchanges with its teams, scatters and broadcasts.
std::vector<double> storage_step_seconds(const StoragePlan& plan);

}  // namespace canzona::plan

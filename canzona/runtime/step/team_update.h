// Carries out one rank's share of the transforms that teams share: the stages
// of team_stages.h, and between them the exchanges of the schedule.
//
//   teams.exchange(entry);               // post
//   teams.await(entry);                  // wait for what the next stage needs
//   teams.run(entry, slot);
//
// Every round uses the same memory: a round ends completely before the next one
// is loaded. Where a rule makes factors only in refreshes, other steps exchange
// none: all ranks of a home skip the same exchanges.
#pragma once

#include <array>
#include <vector>

#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/runtime/rank.h"
#include "canzona/runtime/step/team_stages.h"

namespace canzona {

class TeamUpdate {
 public:
  // Throws UsageError if the rank's engine cannot share a matrix that the plan
  // shares.
  explicit TeamUpdate(Rank& rank);

  void begin(int64_t step);

  // Waits for the exchanges that the stage of an entry needs, because repeated
  // work cannot wait.
  void await(const ScheduleEntry& stage);
  // Carries out the stage of an entry.
  void run(const ScheduleEntry& stage, float* slot);

  // Posts the exchange of an entry, and waits for it if `at_once`.
  void exchange(const ShownEntry& shown, bool at_once);

 private:
  // The exchanges of one matrix of a round, and those under way.
  struct Shared {
    const SharedMatrix* planned = nullptr;
    std::array<TeamExchange, 5> exchanges;
    std::array<Work, 5> works;
    bool exchanges_factors = true;  // in this step
  };

  Shared& at(size_t round, size_t shared) { return rounds_[round][shared]; }
  // The same on all ranks of the home.
  static bool is_exchanged(const Shared& shared, Purpose purpose);
  void wait(Shared& shared, Purpose purpose);
  void wait(Work& work);

  Rank& rank_;
  TeamStages stages_;
  std::vector<std::vector<Shared>> rounds_;
  int64_t step_ = 0;
  int64_t room_of_ = -1;  // the round that uses the rooms
  Work last_;             // the last exchange; it ends after all earlier ones
};

}  // namespace canzona

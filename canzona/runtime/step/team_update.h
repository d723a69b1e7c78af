// Carries out one rank's share of the transforms that teams share
// (rules/strips.h), between the gather and the scatter of a round. The rank
// takes its strips out of a slot, sums them, multiplies them by the head's
// factors and puts them back; in between, the exchanges of the schedule run
// (plan/schedule/team_schedule.h).
//
//   teams.exchange(entry);               // post
//   teams.await(entry);                  // wait for what the next stage needs
//   teams.sum(round, shared, segment);
//
// Every round uses the same memory: a round ends completely before the next one
// is loaded. Where a rule makes factors only in refreshes, other steps exchange
// none: all ranks of a home skip the same exchanges.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/rules/strips.h"
#include "canzona/runtime/rank.h"

namespace canzona {

class TeamUpdate {
 public:
  // Throws UsageError if the rank's engine cannot share a matrix that the plan
  // shares.
  explicit TeamUpdate(Rank& rank);
  ~TeamUpdate();

  void begin(int64_t step);

  // Waits for the exchanges that the stage of an entry needs, because repeated
  // work cannot wait.
  void await(const ScheduleEntry& stage);
  // The stages of entries, applied to the rounds' shared matrices.
  void load(size_t round, size_t shared, float* slot);
  void scale(size_t round, size_t shared);
  void sum(size_t round, size_t shared, int segment);
  void round_sum(size_t round, size_t shared, int segment);
  void iterate(size_t round, size_t shared, int segment);
  void multiply(size_t round, size_t shared, int segment, float* slot);

  // Posts the exchange of an entry, and waits for it if `at_once`.
  void exchange(const ShownEntry& shown, bool at_once);

 private:
  // This rank's share of a matrix of a round.
  struct Shared {
    const SharedMatrix* planned = nullptr;
    TeamRoom room;
    std::byte* memory = nullptr;           // the room's beginning
    SharedTransform* transform = nullptr;  // null if not a member
    std::array<TeamExchange, 5> exchanges;
    std::array<Work, 5> works;
    const Rule* rule = nullptr;
    int phase = 0;
    std::vector<Run> states;        // kept by this rank
    bool is_scaled = false;         // by the norm, in this step
    bool exchanges_factors = true;  // in this step
  };
  // Transforms that are never used in the same round are reused.
  struct Pooled {
    MatrixShape shape;
    TeamSeat seat;
    const Rule* rule = nullptr;
    size_t last_round = 0;
    std::unique_ptr<SharedTransform> transform;
  };

  void add_round(size_t round);
  SharedTransform& transform_for(size_t round, const Shared& shared);
  void require_alike(const SharedMatrix& planned,
                     const SharedTransform& transform) const;
  Shared& at(size_t round, size_t shared) { return rounds_[round][shared]; }
  std::byte* in_room(const Shared& shared, int64_t offset) const {
    return shared.memory + offset;
  }
  Matrices strips_view(const Shared& shared, const SlotRectangle& r) const;
  bool normalize(Shared& shared);
  // The same on all ranks of the home.
  static bool is_exchanged(const Shared& shared, Purpose purpose);
  void wait(Shared& shared, Purpose purpose);
  void wait(Work& work);

  Rank& rank_;
  Arena arena_;
  Arena::Scope scope_;
  std::vector<Pooled> pool_;
  std::vector<std::vector<Shared>> rounds_;
  int64_t step_ = 0;
  int64_t room_of_ = -1;  // the round that uses the rooms
  Work last_;             // the last exchange; it ends after all earlier ones
};

}  // namespace canzona

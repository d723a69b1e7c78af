// The compute stages of matrices that teams share (rules/strips.h), on one
// rank. The rank takes its strips out of a slot, sums them, multiplies them by
// the head's factors and puts them back; in between, exchanges run that the
// schedule lists (plan/schedule/team_schedule.h) and the caller carries out.
//
//   TeamStages stages(engine, std::move(rounds));
//   stages.load(round, team, step, slot);
//   stages.sum(round, team, segment);
//
// Transforms keep what they need from load() to the last multiply(), so every
// round may use the same rooms.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/strips.h"

namespace canzona::runtime {

// This rank's share of a matrix of a round.
struct TeamWork {
  const SharedMatrix* planned = nullptr;
  std::string tensor;  // its name, for errors
  const Rule* rule = nullptr;
  std::vector<Run> states;    // kept by this rank
  std::byte* room = nullptr;  // its beginning
};

class TeamStages {
 public:
  // Throws UsageError if the engine cannot share a matrix that the plan shares.
  // Everything that `rounds` points to must outlive the stages.
  TeamStages(Engine& engine, std::vector<std::vector<TeamWork>> rounds);
  ~TeamStages();

  // The stages, of members alone; a slot has the dtype of the wire.
  void load(size_t round, size_t team, int64_t step, Run slot);
  void scale(size_t round, size_t team);
  void sum(size_t round, size_t team, int segment);
  void round_sum(size_t round, size_t team, int segment);
  void iterate(size_t round, size_t team, int segment);
  void multiply(size_t round, size_t team, int segment, Run slot);
  // Carries out the stage of an entry of this kind.
  void run(EntryKind kind, size_t round, size_t team, int segment, int64_t step,
           Run slot);

  // True if the strips have been scaled by the matrix's norm in this step.
  bool is_scaled(size_t round, size_t team) {
    return at(round, team).is_scaled;
  }

 private:
  struct Shared {
    TeamWork work;
    TeamRoom room;
    SharedTransform* transform = nullptr;  // null if not a member
    bool is_scaled = false;
  };
  // Transforms that are never used in the same round are reused.
  struct Pooled {
    MatrixShape shape;
    TeamSeat seat;
    const Rule* rule = nullptr;
    size_t last_round = 0;
    std::unique_ptr<SharedTransform> transform;
  };

  SharedTransform& transform_for(size_t round, const TeamWork& work);
  static void require_alike(const TeamWork& work,
                            const SharedTransform& transform);
  Shared& at(size_t round, size_t team) { return rounds_[round][team]; }
  static std::byte* in_room(const Shared& shared, int64_t offset) {
    return shared.work.room + offset;
  }
  static Matrices strips_view(const Shared& shared, const SlotRectangle& r);
  static bool normalize(Shared& shared);

  Engine& engine_;
  Arena arena_;
  Arena::Scope scope_;
  std::vector<Pooled> pool_;
  std::vector<std::vector<Shared>> rounds_;
};

}  // namespace canzona::runtime

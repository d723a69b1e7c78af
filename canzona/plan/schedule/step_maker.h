// Puts the entries of a step in order, whoever stores the matrices: what an
// entry is, its ranks and its bytes, a subclass says (entries.h, or
// storage/storage_schedule.h).
//
//   gather(k+2), gather(k+1) ‖ transform(k) ‖ scatter(k−1)
//
// A subclass lists its rounds. All ranks follow one global list, of which each
// executes its part, so ranks that issue in this order cannot deadlock. Where
// replicas need the updates of a round, they are broadcast one transform after
// they were scattered, which needs one more slot. Made from the plan alone; no
// memory is touched. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "canzona/plan/schedule/entries.h"
#include "canzona/plan/schedule/rounds.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona::plan {

class StepMaker {
 public:
  virtual ~StepMaker() = default;
  StepMaker(const StepMaker&) = delete;
  StepMaker& operator=(const StepMaker&) = delete;

 protected:
  struct Settings {
    int32_t num_slots = kExchangeSlots;
    // Collectives of a group end in the order in which they were issued, so
    // that a wait for one covers all before it.
    bool is_ordered = true;
    // Exchanges of teams that never happen are listed, too.
    bool lists_idle = true;
  };
  explicit StepMaker(const Settings& settings) : settings_(settings) {}

  // `round_at` has, for each round of all ranks, its index in `rounds`, or -1
  // if this rank has no part in it. Entry::round is that index.
  std::vector<ScheduleEntry> make(const std::vector<Round>& rounds,
                                  const std::vector<int32_t>& round_at);

  // Adds the work that needs no exchange.
  virtual void add_unmoved() = 0;
  virtual ScheduleEntry compute(EntryKind kind, int32_t round,
                                int32_t segment) = 0;
  virtual ScheduleEntry exchange(Purpose purpose, int32_t round,
                                 const ExchangeTable& table) = 0;
  // Completes an entry of a matrix that a team shares.
  virtual void name_team(const SharedMatrix& /*of*/, ScheduleEntry& /*e*/) {}
  // The broadcasts of a round's updates to replicas.
  virtual std::vector<ScheduleEntry> broadcasts(int32_t /*round*/) {
    return {};
  }
  // False if no update of the round is scattered before it is broadcast.
  virtual bool is_scattered_first(int32_t /*round*/) { return true; }
  // True if the rank computes anything of the round alone in a segment.
  virtual bool works_alone(int32_t /*round*/, int32_t /*segment*/) {
    return true;
  }
  virtual int32_t num_planes(int32_t round) const = 0;

  int32_t add(ScheduleEntry entry) {
    out_.push_back(std::move(entry));
    return static_cast<int32_t>(out_.size()) - 1;
  }

 private:
  // Entries that are under way.
  struct OfRound {
    std::vector<int32_t> gathers, scatters, broadcasts;
    bool is_broadcast = false;
  };
  struct OfTeam {
    int64_t room = 0;           // first byte
    std::vector<int32_t> open;  // exchanges that no stage has waited for
    std::array<int32_t, kNumTeamPurposes> last;
  };

  void add_stage(const ExchangeStage& stage);
  std::vector<int32_t> add_tables(Purpose purpose, int32_t round);
  void broadcast(int32_t round);
  void add_transforms(int32_t round);
  void add_team_stage(int32_t round, const TransformStage& stage);
  void add_team_exchange(int32_t round, const TransformStage& stage);
  void finish_team(const SharedMatrix& of, const TransformStage& stage,
                   ScheduleEntry& entry);
  // The exchanges that a stage of a team needs.
  std::vector<int32_t> awaited(const SharedMatrix& of,
                               const TransformStage& stage);

  const Settings settings_;
  const std::vector<Round>* rounds_ = nullptr;
  std::vector<OfRound> moving_;    // by round
  std::vector<OfTeam> teams_;      // of the round
  std::vector<int32_t> in_rooms_;  // open exchanges of earlier rounds
  std::vector<ScheduleEntry> out_;
};

// Returns the bytes that a rank exchanges with others: the i-th of a table's
// ranks is rank_at(i), on node node_of(rank).
template <class RankAt, class NodeOf>
WireBytes exchanged_bytes(const ExchangeTable& table, int32_t rank,
                          const RankAt& rank_at, const NodeOf& node_of) {
  WireBytes bytes;
  for (size_t i = 0; i < table.send_bytes.size(); ++i) {
    const int32_t other = rank_at(i);
    if (other == rank) continue;
    const bool near = node_of(other) == node_of(rank);
    (near ? bytes.sent_intra : bytes.sent_inter) += table.send_bytes[i];
    (near ? bytes.received_intra : bytes.received_inter) +=
        table.receive_bytes[i];
  }
  return bytes;
}

// Returns where the teams of a round have their rooms, and the end of the last.
std::vector<int64_t> rooms_of(const std::vector<SharedMatrix>& teams);

}  // namespace canzona::plan

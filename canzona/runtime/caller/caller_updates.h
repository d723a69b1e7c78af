// The compute actions of a step on the caller's memory: rules on pieces, on
// gathered matrices, and on what is whole here.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/runtime/caller/caller_rank.h"
#include "canzona/runtime/step/round_stages.h"

namespace canzona::runtime {

// How the rows of a shard lie: in groups of `rows` (0: undivided).
struct RowGroups {
  int64_t count = 1;
  int64_t rows = 0;
  int64_t apart = 0;
};

class CallerUpdates {
 public:
  explicit CallerUpdates(const CallerRank& rank);

  // Carries out an entry that computes.
  void run(const ScheduleEntry& entry);
  bool needs(const ScheduleEntry& entry, int64_t step) const {
    return stages_.needs(entry, step);
  }
  // Memory or rules are others from now on.
  void rebind() { stages_.rebind(); }

 private:
  // Elements that one lane processes at once.
  struct Chunk {
    int32_t tensor = 0;
    int64_t at = 0;
    int64_t count = 0;
  };
  using Order = std::vector<int32_t>;  // of batches, by descending work
  // Shards of one call, per lane.
  struct Room {
    Engine* engine = nullptr;
    std::vector<Shard> shards;
    std::vector<Run> states;  // kMostShardStates each
    std::vector<Engine::Widened> widened;

    void reserve(size_t most);
    void clear();
  };

  void send_elements(size_t round);
  void take_elements(const Round& round);
  void elements() { update_elements(rank_.schedule.elements, chunks_); }
  void local();
  void make_rooms();
  Room& room_of(const Engine& engine);
  // Adds a shard; a bf16 gradient will be widened into scratch.
  void add_shard(Room& room, int32_t t, const Dims& whole, int64_t at,
                 int64_t count, const RowGroups& groups = {}) const;

  bool sends_bf16() const;
  bool can_step_whole(const UpdateBatch& batch) const;
  int64_t group_rows(const UpdateBatch& batch) const;
  void step_whole(Engine& engine, const UpdateBatch& batch, int64_t begin,
                  int64_t end);
  // Steps all batches of a device that can_step_whole as one repeated work.
  void step_wholes_together();
  // The stages of a round, in scratch.
  void step_by_stages(Engine& engine, const MatrixBatch& batch, int64_t begin,
                      int64_t end) const;
  void lay_out_here();

  void update_chunk(Engine& engine, const Chunk& chunk) const;
  void update_together(const std::vector<ElementTensor>& tensors);
  void update_elements(const std::vector<ElementTensor>& tensors,
                       const std::vector<Chunk>& chunks);
  std::vector<Chunk> chunks_of(const std::vector<ElementTensor>& tensors) const;

  const CallerRank& rank_;
  RoundStages stages_;
  Order local_order_;
  // Matrices whose pieces never move, in a slot of each batch: by batch and
  // piece, and the elements of each slot.
  std::vector<SlotMatrix> here_;
  std::vector<MatrixBatch> batches_here_;
  std::vector<std::vector<SlotPiece>> prepared_, applied_;
  std::vector<int64_t> slot_elements_;
  std::vector<Engine*> engine_of_;          // by batch of local
  std::vector<Chunk> chunks_;               // of elements
  std::vector<std::vector<Chunk>> shared_;  // by round
  std::vector<Room> rooms_;
};

}  // namespace canzona::runtime

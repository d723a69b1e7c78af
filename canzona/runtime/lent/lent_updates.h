// The compute actions of a step on lent memory: rules on pieces, on gathered
// matrices, and on what is whole here.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/runtime/lent/lent_rank.h"
#include "canzona/runtime/step/team_stages.h"

namespace canzona {

// How the rows of a shard lie: in groups of `rows` (0: undivided).
struct RowGroups {
  int64_t count = 1;
  int64_t rows = 0;
  int64_t apart = 0;
};

class LentUpdates {
 public:
  explicit LentUpdates(const LentRank& rank);

  void prepare(const PlacedRound& round);
  void transform(size_t round, int32_t segment);
  // A stage of a team (plan/schedule/team_schedule.h).
  void team_stage(const PlacedAction& action);
  // True if an exchange of a team is needed in such a step of its tensor.
  bool needs(const PlacedAction& action, int64_t step) const;
  // Memory or rules are others from now on.
  void rebind() { teams_.reset(); }
  void apply(const PlacedRound& round);
  void elements();
  void local();

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

  TeamStages& teams();
  int32_t team_tensor(const PlacedAction& action) const;
  Order by_work(const std::vector<UpdateBatch>& batches) const;
  std::vector<Order> by_segment(const std::vector<UpdateBatch>& batches) const;
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
  void step_by_stages(Engine& engine, const UpdateBatch& batch, int64_t begin,
                      int64_t end) const;
  void prepare_local(Engine& engine, int32_t kept, const Piece& piece,
                     std::span<const Run> matrix) const;
  void apply_local(Engine& engine, int32_t kept, const Piece& piece,
                   Run matrix) const;

  void update_chunk(Engine& engine, const Chunk& chunk) const;
  void update_together(const std::vector<ElementTensor>& tensors);
  void update_elements(const std::vector<ElementTensor>& tensors,
                       const std::vector<Chunk>& chunks);
  std::vector<Chunk> chunks_of(const std::vector<ElementTensor>& tensors) const;

  const LentRank& rank_;
  const LentMatrices stored_;
  const MatrixStages stages_;
  std::vector<std::vector<MatrixBatch>> batches_;  // by round
  std::vector<std::vector<Order>> orders_;         // by round and segment
  Order local_order_;
  std::vector<Engine*> engine_of_;          // by batch of local
  std::vector<Chunk> chunks_;               // of elements
  std::vector<std::vector<Chunk>> shared_;  // by round
  std::unique_ptr<TeamStages> teams_;       // made when first needed
  std::vector<Room> rooms_;
};

}  // namespace canzona

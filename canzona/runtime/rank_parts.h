// All of a rank's parts of a plan (rank_part.h), and which tensor is in which;
// for the sources of this room.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "canzona/runtime/gradient_check.h"
#include "canzona/runtime/logical_digest.h"
#include "canzona/runtime/rank_part.h"

namespace canzona {

class RankParts {
 public:
  // UsageError if the ranks hold different plans.
  RankParts(const Plan& plan, Communicator& world, Engine& engine,
            const RuntimeOptions& options);

  // A tensor of the whole model as its part counts it.
  struct Seat {
    RankPart* part = nullptr;  // null: on other ranks
    int32_t number = 0;
  };
  const Seat& seat(int32_t tensor) const {
    return seats_.at(static_cast<size_t>(tensor));
  }
  // UsageError if the tensor is on other ranks.
  const Seat& own_seat(int32_t tensor) const;

  std::span<const std::unique_ptr<RankPart>> all() const { return parts_; }
  RankPart& first() const { return *parts_.front(); }
  Communicator& control() const { return first().rank.groups.control(); }
  void abort(const std::string& reason) const {
    first().rank.groups.abort(reason);
  }

  void begin_iteration(std::span<const int32_t> uses,
                       int64_t num_micro_batches);
  void wait_params(int32_t module) const;
  void release_params(int32_t module) const;
  void wait_all_params() const;
  void finish_gradients() const;
  StepOutcome step(const StepSettings& settings);

  int64_t steps_done() const { return steps_done_; }
  // Sum of what the ranks have digested, each number by one of them.
  std::string text_of(LogicalDigest digest) const;

  const Plan& plan;
  const Coordinates place;  // in the mesh

 private:
  void update(const StepSettings& settings) const;
  // Which part a module's uses are announced to where none has it: the first
  // says so.
  bool is_known(int32_t module) const;
  bool serves(const RankPart& part, int32_t module) const {
    return part.gathers(module) || (&part == &first() && !is_known(module));
  }

  std::unique_ptr<Communicator> of_experts_;  // with this ep coordinate
  std::vector<std::unique_ptr<RankPart>> parts_;
  std::vector<Seat> seats_;  // by tensor
  GradientCheck check_;
  // Kept from step to step, so that none allocates.
  std::vector<int32_t> uses_;       // that a part serves
  std::vector<int32_t> nonfinite_;  // by part
  int64_t steps_done_ = 0;
};

}  // namespace canzona

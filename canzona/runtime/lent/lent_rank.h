// Everything a rank knows while it steps on lent memory; for the sources of
// this folder.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "canzona/base/index.h"
#include "canzona/linalg/lanes.h"
#include "canzona/plan/placed/placed_schedule.h"
#include "canzona/rules/rule.h"
#include "canzona/runtime/lent/lent_memory.h"

namespace canzona {

// The most states that a rule keeps with the shard.
inline constexpr size_t kMostShardStates = 4;
using ShardStates = Run[kMostShardStates];

struct LentRank {
  // Without lanes the first engine leads, and the others take shapes of
  // matrices that lie here whole, side by side.
  LentRank(const PlacedPlan& the_plan, int32_t rank,
           std::vector<Engine*> the_engines, Lanes* the_lanes);

  const PlacedPlan& plan;
  const PlacedSchedule schedule;
  const std::vector<Engine*> engines;
  Engine& engine;  // the first, of the calling thread
  Lanes* const lanes;
  // True if work has ended when a call returns, in memory of this process.
  const bool is_immediate;
  std::vector<RuleOptions> options;          // by group
  std::vector<std::unique_ptr<Rule>> rules;  // by group
  std::vector<Dims> dims;                    // by matrix
  LentMemory memory;
  std::vector<LentGradient> gradients;  // by tensor
  std::vector<int64_t> steps;           // by tensor
  std::vector<double> rates;            // by group
  const int32_t* skip = nullptr;        // in the engine's memory

  const PlacedTensor& tensor(int32_t t) const { return plan.tensors[index(t)]; }
  int32_t tensor_of(int32_t matrix) const {
    return plan.matrices[index(matrix)].tensor;
  }
  const Rule& rule_of(int32_t t) const {
    return *rules[index(tensor(t).group)];
  }
  bool has_gradient(int32_t t) const {
    return gradients[index(t)].data != nullptr;
  }
  Step step_of(int32_t t) const {
    return {steps[index(t)], rates[index(tensor(t).group)]};
  }
  DType wire() const {
    return plan.options.wire == WireDtype::kBf16 ? DType::kBf16 : DType::kFp32;
  }
  Run slot(int64_t at) const {
    return {memory.slots + at * size_of(wire()), wire()};
  }
  // New weights on their way, whatever the wire.
  Run wide_slot(int64_t at) const { return {slot(at).data, DType::kFp32}; }

  // From element `at` of the rank's storage on: what a rule updates, which is
  // the weights or their fp32 masters; the weights themselves, if they are not.
  Run weights(int32_t t, int64_t at) const;
  uint16_t* rounded(int32_t t, int64_t at) const;
  Run gradient(int32_t t, int64_t at) const;
  // All but the gradient, with the states in memory of the caller.
  Shard shard(int32_t t, const Dims& whole, int64_t at, int64_t count,
              Run* states) const;

  // The most elements that pass through scratch at once: few, where caches are
  // to hold them.
  int64_t chunk() const {
    return is_immediate ? int64_t{1} << 15 : int64_t{1} << 26;
  }

  // Gives every lane the scratch that the greediest has: which one takes a
  // matrix is a matter of time.
  void level_scratch();

  // Calls work(engine, i) for each of `count` items, on all lanes.
  template <class Work>
  void for_each(int64_t count, const Work& work) const {
    if (lanes != nullptr && count > 1)
      return lanes->for_each(count, std::cref(work));
    for (int64_t i = 0; i < count; ++i) work(engine, i);
  }
  // Work that changes weights or states, by element-wise calls.
  template <class Work>
  void guarded(const Work& work) const {
    if (!is_immediate) return engine.guard(skip, std::cref(work));
    if (*skip == 0) work();
  }
  // The same by any calls, on memory that stays where it is.
  template <class Work>
  void repeated(const Work& work) const {
    if (is_immediate) return guarded(work);
    const auto inside = [&] { engine.if_zero(skip, std::cref(work)); };
    engine.repeat(std::cref(inside));
  }
};

}  // namespace canzona

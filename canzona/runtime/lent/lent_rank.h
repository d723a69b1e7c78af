// Everything a rank knows while it steps on lent memory; for the sources of
// this folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/linalg/gradient_numbers.h"
#include "canzona/linalg/lanes.h"
#include "canzona/linalg/matrix.h"
#include "canzona/plan/placed/placed_schedule.h"
#include "canzona/rules/rule.h"

namespace canzona {

// Memory that a caller lends for steps (lent_step.h): all of it in the engine's
// memory, none of it owned.

// It stays where it is until other memory is bound. Tensors are those of the
// plan; null where this rank stores nothing of one.
struct LentMemory {
  std::vector<std::byte*> weights;  // by tensor, in the tensor's dtype
  std::vector<float*> masters;  // by tensor; of bf16 tensors, the fp32 weights
  std::vector<float*> states;   // by number in PlacedSchedule::memories
  std::byte* slots = nullptr;   // PlacedSchedule::slot_elements of the wire
  int64_t* numbers = nullptr;   // kLentNumbers of them
};
inline constexpr int64_t kLentNumbers = 16;

// The gradient of what a rank stores of a tensor. Null: the tensor has none in
// this step and is left alone; where the rank stores nothing of a tensor that
// has one, any other address. It lies wherever it likes at each step and is
// never written but by LentStep::clip().
struct LentGradient {
  std::byte* data = nullptr;
  DType dtype = DType::kFp32;  // or kBf16
};

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

// The look at gradients before a step on lent memory. All ranks' numbers meet
// in integer all-reduces that the caller issues, so they do not depend on who
// adds what; GradientNumbers (linalg/gradient_numbers.h) hold what follows.

class LentGradients {
 public:
  explicit LentGradients(LentRank& rank);

  // All gradients pass until something else is said.
  void begin();
  void look();
  void squares();
  void clip(double limit);
  void judge(bool skip);

  // True if squares were asked for in this step.
  bool has_norm() const { return has_squares_; }
  // Waits for a device.
  GradientNumbers read();
  // The tensor that a number above all bits names; -1: none.
  int32_t tensor_of(int64_t code) const;

 private:
  struct Part {
    int32_t tensor = 0;
    Extent extent;
  };

  std::vector<Part> parts_of(
      const std::vector<std::vector<Extent>>& extents) const;
  int64_t code_of(int32_t tensor) const;
  int64_t* shared() const { return rank_.memory.numbers; }
  int64_t* limbs() const { return rank_.memory.numbers + 4; }
  void put_likeness();
  void look_now();
  void issue_look();
  // The runs of parts that have gradients, and the codes of their tensors.
  void collect(const std::vector<Part>& parts);
  void take_squares();

  LentRank& rank_;
  Arena memory_;
  Arena::Scope whole_life_{memory_};
  GradientNumbers* numbers_;
  int32_t* found_;
  int64_t* code_;
  std::vector<Part> looked_, counted_;
  std::vector<Engine::Stretch> runs_;
  std::vector<int64_t> codes_;
  std::vector<uint32_t> bits_;  // by run
  std::vector<WideSum> sums_;   // by run
  bool has_squares_ = false, has_norm_ = false;
};

}  // namespace canzona

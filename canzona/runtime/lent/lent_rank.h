// Everything a rank knows while it steps on lent memory; internal to this
// folder.
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

// Memory that a caller lends for steps (lent_step.h): all of it is the engine's
// memory, none of it is owned here.

// Addresses must not change until other memory is bound. Tensors are those of
// the plan; null where this rank stores nothing of one.
struct LentMemory {
  std::vector<std::byte*> weights;  // by tensor, in the tensor's dtype
  std::vector<float*> masters;  // by tensor; of bf16 tensors, the fp32 weights
  std::vector<float*> states;   // by number in PlacedSchedule::memories
  std::byte* slots = nullptr;   // PlacedSchedule::slot_elements of the wire
  int64_t* numbers = nullptr;   // kLentNumbers of them
};
inline constexpr int64_t kLentNumbers = 16;

// The gradient of what a rank stores of a tensor. Null: the tensor has no
// gradient in this step and is left unchanged; where the rank stores nothing of
// a tensor that has a gradient, any other address. The address may change with
// each step; only LentStep::clip() writes to it.
struct LentGradient {
  std::byte* data = nullptr;
  DType dtype = DType::kFp32;  // or kBf16
};

// The maximum number of states that a rule keeps with the shard.
inline constexpr size_t kMostShardStates = 4;
using ShardStates = Run[kMostShardStates];

// Returns the same number for rules with the same options in force.
uint64_t hash_of_options(const Rule& rule);

struct LentRank {
  // Without lanes the first engine leads, and the matrices that are whole here
  // are distributed over all engines by shape.
  LentRank(const PlacedPlan& the_plan, int32_t rank,
           std::vector<Engine*> the_engines, Lanes* the_lanes);

  const PlacedPlan& plan;
  const PlacedSchedule schedule;
  const std::vector<Engine*> engines;
  Engine& engine;  // the first; used by the calling thread
  Lanes* const lanes;
  // True if calls have ended when they return and memory is host memory.
  const bool is_immediate;
  std::vector<RuleOptions> options;          // by group
  std::vector<std::unique_ptr<Rule>> rules;  // by group
  std::vector<uint64_t> hashes;              // of options in force, by group
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
  // New weights in transit, whatever the wire.
  Run wide_slot(int64_t at) const { return {slot(at).data, DType::kFp32}; }

  // From element `at` of the rank's storage on. weights(): what a rule updates,
  // either the weights or their fp32 masters. rounded(): the weights themselves
  // if they have masters, else null.
  Run weights(int32_t t, int64_t at) const;
  uint16_t* rounded(int32_t t, int64_t at) const;
  Run gradient(int32_t t, int64_t at) const;
  // Everything except the gradient; `states` is the caller's memory.
  Shard shard(int32_t t, const Dims& whole, int64_t at, int64_t count,
              Run* states) const;

  // The number of elements that pass through scratch at once: small on CPUs, so
  // that caches hold them.
  int64_t chunk() const {
    return is_immediate ? int64_t{1} << 15 : int64_t{1} << 26;
  }

  // Gives every lane as much scratch as the largest one has, because which lane
  // takes a matrix depends on timing.
  void level_scratch();

  // Calls work(engine, i) for each of `count` items, on all lanes.
  template <class Work>
  void for_each(int64_t count, const Work& work) const {
    if (lanes != nullptr && count > 1)
      return lanes->for_each(count, std::cref(work));
    for (int64_t i = 0; i < count; ++i) work(engine, i);
  }
  // Runs element-wise work that changes weights or states.
  template <class Work>
  void guarded(const Work& work) const {
    if (!is_immediate) return engine.guard(skip, std::cref(work));
    if (*skip == 0) work();
  }
  // The same for any calls, on memory whose addresses do not change.
  template <class Work>
  void repeated(const Work& work) const {
    if (is_immediate) return guarded(work);
    const auto inside = [&] { engine.if_zero(skip, std::cref(work)); };
    engine.repeat(std::cref(inside));
  }
};

// The gradient check before a step on lent memory. The ranks' numbers are
// combined by integer all-reduces that the caller issues, so that they do not
// depend on the order of addition; GradientNumbers (linalg/gradient_numbers.h)
// holds the results.
class LentGradients {
 public:
  explicit LentGradients(LentRank& rank);

  // Accepts all gradients unless a later call decides otherwise.
  void begin();
  void look();
  void squares();
  void clip(double limit);
  void judge(bool skip);

  // True if squares were requested in this step.
  bool has_norm() const { return has_squares_; }
  // Waits for the device.
  GradientNumbers read();
  // The tensor that a code names; -1 if the number is no code.
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
  // Collects the runs of the parts that have gradients, and their tensors'
  // codes.
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

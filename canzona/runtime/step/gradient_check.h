// Processes reduced gradients before a rule sees them: multiplies them by the
// factor, checks for non-finite values, computes the global norm, and clips.
//
//   GradientCheck check;
//   check.add(rank, numbers);       // dense tensors, then experts
//   check.run(control, model, settings, nonfinite, outcome);
//
// The norm is a sum of integers (each square scaled by a power of two and
// truncated), so that it does not depend on the order of addition. Takes at
// most two all-reduces, of 8 and 16 bytes.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "canzona/runtime/rank.h"

namespace canzona {

// A rank's view of its reduced gradients of one part of the plan. Every element
// of the model is counted by exactly one rank.
class GradientLook {
 public:
  explicit GradientLook(Rank& rank);

  Rank& rank() const { return rank_; }

  // Multiplies everything that this rank stores. Returns the bits of the
  // largest magnitude among what it counts; they exceed those of every finite
  // number if one is not finite.
  uint32_t scale_and_look(double factor);
  // The same without waiting: raises the largest of the numbers.
  void scale_and_find_largest(GradientNumbers* numbers, double factor);
  // The first tensor with a value that is not finite; 0 if there is none.
  int32_t first_nonfinite_tensor();
  // The sum over what this rank counts, times 2 to the power of 2 · exponent.
  // Only the first replica counts.
  WideSum sum_of_squares(int exponent);
  // Scales everything that this rank stores.
  void scale(double factor) { scale(planned_.scaled, factor); }
  // The same with a factor in the engine's memory.
  void scale_by(const double* factor);

  // The stretches that this rank counts, and their tensors.
  std::span<const Engine::Stretch> counted() const { return counted_; }
  std::span<const int32_t> counted_tensors() const { return planned_.tensor; }
  bool counts_squares() const {
    return replica_of(rank_.part, rank_.world_rank) == 0;
  }

 private:
  void scale(const std::vector<Extent>& extents, double factor);

  Rank& rank_;
  const CheckedGradients planned_;
  std::vector<Engine::Stretch> counted_;
  std::vector<Engine::ScaledStretch> counted_to_scale_;  // the same
};

// The number that all ranks reduce by maximum: the bits of the largest
// magnitude or, larger than all of those, a code of where a value was not
// finite: in this rank's own gradient, which is more informative, or in a sum.
int64_t nonfinite_code(const Rank& rank, int32_t tensor, bool own);
// Returns true if the number is a code, and then describes it in `outcome`.
bool say_if_skipped(int64_t largest, const Model& model, StepOutcome& outcome);

inline constexpr std::string_view kLargestLabel = "largest gradient";
inline constexpr std::string_view kNormLabel = "norm of the gradient";

class GradientCheck {
 public:
  // Adds another part of the plan on this rank.
  void add(Rank& rank) { parts_.emplace_back(rank); }

  // `control`: all ranks. `own_nonfinite`: by part, a tensor whose gradient on
  // this rank was not finite before it was reduced, or -1. Fills in what the
  // outcome says about gradients.
  void run(Communicator& control, const Model& model,
           const StepSettings& settings,
           const std::vector<int32_t>& own_nonfinite, StepOutcome& outcome);

 private:
  int64_t largest(Communicator& control, double factor,
                  const std::vector<int32_t>& own_nonfinite);
  double norm(Communicator& control, uint32_t largest_bits);

  std::deque<GradientLook> parts_;
};

// The gradient check before a step for asynchronous engines:
// all numbers stay in the engine's memory, and the host does not wait. Work
// that must not run with non-finite gradients tests skip(), a flag in that
// memory.
//
//   OrderedCheck check;
//   check.add(rank, reducer.own_code());
//   check.issue(settings);              // sets the flag
//   engine.if_zero(check.skip(), update);
//   check.read(model, outcome);         // waits if necessary
//
// The results are bit-identical to those of GradientCheck. One thread.
class OrderedCheck {
 public:
  // Adds another part of the plan on this rank; all ranks communicate over the
  // first part's groups. `own_code` is in the engine's memory: where a gradient
  // was not finite before it was reduced (nonfinite_code), or 0.
  void add(Rank& rank, const int64_t* own_code);

  void issue(const StepSettings& settings);
  const int32_t* skip() const { return &numbers_->skip; }
  // Reads the outcome of the last step that was issued, once.
  void read(const Model& model, StepOutcome& outcome);

 private:
  struct Part {
    Part(Rank& rank, const int64_t* own_code);
    GradientLook look;
    const int64_t* own_code;
    std::vector<int64_t> codes;  // by counted run
  };
  static constexpr size_t kWords = 4;  // read back: largest and norm

  void look(double factor);
  void all_reduce(Reduction reduction, std::byte* data, int64_t bytes,
                  std::string_view label);
  void post();
  Rank& rank() const { return parts_.front().look.rank(); }

  mutable std::deque<Part> parts_;
  std::unique_ptr<Arena> memory_;
  std::unique_ptr<Arena::Scope> whole_life_;
  GradientNumbers* numbers_ = nullptr;
  int32_t* found_ = nullptr;
  int64_t* sum_code_ = nullptr;
  std::array<std::unique_ptr<Notice>, kWords> notices_;
};

}  // namespace canzona

// Reduced gradients go through this before a rule sees them: one multiplication
// by the factor, a look for values that are not finite, the global norm, and
// clipping.
//
//   GradientCheck check;
//   check.add(rank, numbers);       // dense tensors, then experts
//   check.run(control, model, settings, nonfinite, outcome);
//
// The norm is a sum of integers (each square scaled by a power of two and
// truncated), so that it does not depend on who adds what. At most two
// all-reduces, 8 and 16 bytes.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "canzona/runtime/rank.h"

namespace canzona {

// A rank's look at its reduced gradients of one part of the plan. Every element
// of the model is counted by one rank.
class GradientLook {
 public:
  explicit GradientLook(Rank& rank);

  Rank& rank() const { return rank_; }

  // Multiplies everything that this rank keeps; the bits of the largest
  // magnitude of what it counts, above those of every number if one is not
  // finite.
  uint32_t scale_and_look(double factor);
  // That is not finite; 0 if none is.
  int32_t first_nonfinite_tensor();
  // The sum over what it counts, times two to the power of 2 · exponent.
  // Replicas leave it to the first of them.
  WideSum sum_of_squares(int exponent);
  // Everything that this rank keeps.
  void scale(double factor) { scale(planned_.scaled, factor); }
  // The same with a factor in the engine's memory.
  void scale_by(const double* factor);

  // The stretches that it counts, and their tensors.
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

// One number for all ranks, the largest of theirs: bits of the largest
// magnitude, or, above all of those, such a code of where something was not
// finite: in this rank's own gradient, which is better to know, or in a sum.
int64_t nonfinite_code(const Rank& rank, int32_t tensor, bool own);
// True if it is a code; the outcome says what it means then.
bool say_if_skipped(int64_t largest, const Model& model, StepOutcome& outcome);

inline constexpr std::string_view kLargestLabel = "largest gradient";
inline constexpr std::string_view kNormLabel = "norm of the gradient";

class GradientCheck {
 public:
  // One more part of the plan on this rank.
  void add(Rank& rank) { parts_.emplace_back(rank); }

  // `control`: all ranks. `own_nonfinite`: by part, a tensor of this rank that
  // was not finite before it was reduced, or -1. Fills what the outcome says of
  // gradients.
  void run(Communicator& control, const Model& model,
           const StepSettings& settings,
           const std::vector<int32_t>& own_nonfinite, StepOutcome& outcome);

 private:
  int64_t largest(Communicator& control, double factor,
                  const std::vector<int32_t>& own_nonfinite);
  double norm(Communicator& control, uint32_t largest_bits);

  std::deque<GradientLook> parts_;
};

}  // namespace canzona

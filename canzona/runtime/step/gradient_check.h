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

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
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

// The look at gradients before a step (gradient_check.h) where the engine works
// later than it is told to: everything stays in its memory, and nobody waits.
// Work that must not be done with such gradients asks skip(), a flag there.
//
//   OrderedCheck check;
//   check.add(rank, reducer.own_code());
//   check.issue(settings);              // the flag will say
//   engine.if_zero(check.skip(), update);
//   check.read(model, outcome);         // waits, if it is not there yet
//
// The numbers are those of GradientCheck, to the bit. One thread.

class OrderedCheck {
 public:
  // One more part of the plan on this rank; all ranks talk over the first's
  // groups. `own_code`: in the engine's memory, where a gradient was not finite
  // before it was reduced (nonfinite_code), or 0.
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
  static constexpr size_t kWords = 4;  // that are read: largest and norm

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

// What happens to reduced gradients before a rule sees them: one multiplication
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

#include <deque>
#include <vector>

#include "canzona/runtime/gradient_look.h"

namespace canzona {

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

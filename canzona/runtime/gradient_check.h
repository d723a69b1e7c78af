// What happens to reduced gradients before a rule sees them: one multiplication
// by the factor, a look for values that are not finite, the global norm, and
// clipping.
//
// The norm is a sum of integers (each square scaled by a power of two and
// truncated), so that it does not depend on who adds what. Every element of the
// model is counted by one rank. At most two all-reduces, 8 and 16 bytes.
#pragma once

#include <vector>

#include "canzona/runtime/rank.h"

namespace canzona {

class GradientCheck {
 public:
  explicit GradientCheck(Rank& rank);

  // `own_nonfinite`: a tensor of this rank that was not finite before it was
  // reduced, or -1. Fills what the outcome says of gradients.
  void run(const StepSettings& settings, int32_t own_nonfinite,
           StepOutcome& outcome);

 private:
  void add_counted(int32_t tensor, Extent extent);
  void add_scaled();
  void find_uncounted();
  void scale(const std::vector<Extent>& extents, double factor);
  int64_t largest(int32_t own_nonfinite, double factor);
  int32_t first_nonfinite_tensor();
  double norm(uint32_t largest_bits);

  Rank& rank_;
  std::vector<Extent> scaled_;     // everything that this rank keeps
  std::vector<Extent> uncounted_;  // what of it another rank counts
  std::vector<Engine::Stretch> counted_;
  std::vector<Engine::ScaledStretch> counted_to_scale_;  // the same
  std::vector<int32_t> counted_tensor_;
};

}  // namespace canzona

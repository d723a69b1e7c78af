// A rank's look at its reduced gradients, before a rule sees them; see
// gradient_check.h. Every element of the model is counted by one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/runtime/rank.h"

namespace canzona {

// The bits of |g| as an integer are at least this if g is not finite.
inline constexpr uint32_t kInfinityBits = 0x7F800000;

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
  // Of what it counts, times two to the power of 2 · exponent. Replicas leave
  // it to the first of them.
  WideSum sum_of_squares(int exponent);
  // Everything that this rank keeps.
  void scale(double factor) { scale(planned_.scaled, factor); }

 private:
  void scale(const std::vector<Extent>& extents, double factor);

  Rank& rank_;
  const CheckedGradients planned_;
  std::vector<Engine::Stretch> counted_;
  std::vector<Engine::ScaledStretch> counted_to_scale_;  // the same
};

}  // namespace canzona

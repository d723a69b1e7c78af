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
  // Parts of the plan on one rank. `numbers`: the whole model's, by tensor of
  // the part; empty if they are the same.
  void add(Rank& rank, std::vector<int32_t> numbers);

  // `control`: all ranks. `own_nonfinite`: by part, a tensor of this rank that
  // was not finite before it was reduced, or -1. Fills what the outcome says of
  // gradients.
  void run(Communicator& control, const Model& model,
           const StepSettings& settings,
           const std::vector<int32_t>& own_nonfinite, StepOutcome& outcome);

 private:
  struct Part {
    Part(Rank& rank, std::vector<int32_t> the_numbers)
        : look(rank), numbers(std::move(the_numbers)) {}
    int32_t number(int32_t tensor) const {
      return numbers.empty() ? tensor : numbers[static_cast<size_t>(tensor)];
    }
    GradientLook look;
    std::vector<int32_t> numbers;
  };

  int64_t largest(Communicator& control, double factor,
                  const std::vector<int32_t>& own_nonfinite);
  double norm(Communicator& control, uint32_t largest_bits);

  std::deque<Part> parts_;
};

}  // namespace canzona

// Where the states of one tensor lie. The owner keeps, in this order,
//
//   filtered_grad, grafting_avg_sq   like the tensor; absent without a use
//   L inv_L                          factors of axis 0 and their inverse roots,
//                                    stacked: {count, d, d}
//   L_edge inv_L_edge                those of the shorter blocks at its end
//   R …                              the same of axis 1
//   refresh_failures                 refreshes of each factor that failed in
//                                    a row: {blocks, axes}
//
// With more than two axes, factors are called F_0, F_1, F_2 and so on.
// Factors of one state follow each other in the order of their blocks. This is
// the only place that knows; made anew by every step, without the heap.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/rules/facts.h"
#include "canzona/rules/shampoo/blocks.h"
#include "canzona/rules/shampoo/options.h"

namespace canzona {

// One factor of side d: numbers of its states, which of the `stack` matrices
// in them it is, and its place in refresh_failures.
struct FactorPlace {
  int factor = 0;
  int inv_root = 0;
  int64_t place = 0;
  int64_t stack = 0;
  int64_t side = 0;
  int64_t failures = 0;
};

class ShampooLayout {
 public:
  static constexpr int kNone = -1;

  ShampooLayout(const ShampooOptions& options, std::span<const int64_t> dims);

  const Blocking& blocking() const { return blocking_; }
  // Axes with factors: all of them or none.
  int num_axes() const { return num_axes_; }
  int filtered_grad() const { return filtered_grad_; }
  int grafting() const { return grafting_; }
  int refresh_failures() const { return refresh_failures_; }
  FactorPlace factor(const TensorBlock& block, int axis) const;

  std::vector<StateFact> states(std::span<const int64_t> dims) const;

 private:
  Blocking blocking_;
  int num_axes_;
  int filtered_grad_ = kNone;
  int grafting_ = kNone;
  int refresh_failures_ = kNone;
  std::array<int, kMostAxes> first_state_{};  // of each axis
};

}  // namespace canzona

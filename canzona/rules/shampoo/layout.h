// A layout says where the states of one tensor lie. The owner keeps, in this
// order,
//
//   filtered_grad, grafting_avg_sq   like the tensor; absent without a use
//   L inv_L                          factors of axis 0 and their inverse roots,
//                                    stacked: {count, d, d}
//   L_edge inv_L_edge                those of the shorter blocks at its end
//   R …                              the same of axis 1
//   refresh_failures                 refreshes of each factor that failed in
//                                    a row: {blocks, axes with factors}
//
// and every rank with its shard
//
//   momentum                         like the tensor, if classic_momentum
//
// With more than two axes, factors are called F_0, F_1, F_2 and so on.
// Factors of one state follow each other in the order of their blocks. This is
// the only place that knows; made anew by every step, without the heap.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/rules/blocks.h"
#include "canzona/rules/facts.h"
#include "canzona/rules/shampoo/options.h"

namespace canzona {

class ShampooLayout {
 public:
  static constexpr int kNone = -1;

  ShampooLayout(const ShampooOptions& options, std::span<const int64_t> dims);

  const FactorLayout& factors() const { return factors_; }
  const Blocking& blocking() const { return factors_.blocking(); }
  int num_factors() const { return factors_.num_factors(); }  // of a block
  bool has_factor(int axis) const { return factors_.has_factor(axis); }
  int filtered_grad() const { return filtered_grad_; }
  int grafting() const { return grafting_; }
  int refresh_failures() const;
  int momentum() const;

  std::vector<StateFact> states(std::span<const int64_t> dims) const;

 private:
  int filtered_grad_;
  int grafting_;
  FactorLayout factors_;  // each with its inverse root
  bool has_momentum_;
};

}  // namespace canzona

// Where the factors of a tensor's blocks lie in the states of its owner. Each
// axis that has factors keeps some states per kind of length (blocks.h), the
// factors first and what is computed from them after:
//
//   axis 0, full blocks   L inv_L            stacks of count x d x d
//   axis 0, shorter ones  L_edge inv_L_edge
//   axis 1 …
//
//   FactorLayout factors(
//       blocking, {.axes = 0b11, .states_per_kind = 2, .first_state = 1});
//   FactorPlace at = factors.place(blocking.block(3), 0);
//
// A value without the heap; every step makes it anew.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <string>
#include <vector>

#include "canzona/rules/blocks.h"
#include "canzona/rules/facts.h"

namespace canzona {

// One factor of length `side`: number `place` of the `stack` matrices in state
// `first_state`. What is computed from it has the same place in the states
// after that.
struct FactorPlace {
  int first_state = 0;
  int64_t place = 0;
  int64_t stack = 0;
  int64_t side = 0;
  // Among the counters of all factors, one row of them per block.
  int64_t failures = 0;
};

class FactorLayout {
 public:
  struct States {
    std::bitset<kMostAxes> axes;  // that have factors
    int states_per_kind = 2;
    int first_state = 0;
  };
  FactorLayout(const Blocking& blocking, const States& states);

  const Blocking& blocking() const { return blocking_; }
  int num_factors() const { return num_factors_; }  // of one block
  bool has_factor(int axis) const {
    return first_state_[static_cast<size_t>(axis)] >= 0;
  }
  int states_per_kind() const { return states_per_kind_; }
  int end_state() const { return end_state_; }  // the first after them
  // Of all blocks; checked.
  int64_t num_counters() const;
  FactorPlace place(const TensorBlock& block, int axis) const;

 private:
  Blocking blocking_;
  int states_per_kind_;
  int num_factors_ = 0;
  int end_state_ = 0;
  std::array<int, kMostAxes> first_state_{};  // -1: no factors
};

// An fp32 state at the owner.
StateFact owned_state(std::string name, std::vector<int64_t> shape,
                      Initially initially = Initially::kZero);

}  // namespace canzona

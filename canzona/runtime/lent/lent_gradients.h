// The look at gradients before a step on lent memory. All ranks' numbers meet
// in integer all-reduces that the caller issues, so they do not depend on who
// adds what; GradientNumbers (linalg/gradient_numbers.h) hold what follows.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/linalg/gradient_numbers.h"
#include "canzona/runtime/lent/lent_rank.h"

namespace canzona {

class LentGradients {
 public:
  explicit LentGradients(LentRank& rank);

  // All gradients pass until something else is said.
  void begin();
  void look();
  void squares();
  void clip(double limit);
  void judge(bool skip);

  // True if squares were asked for in this step.
  bool has_norm() const { return has_squares_; }
  // Waits for a device.
  GradientNumbers read();
  // The tensor that a number above all bits names; -1: none.
  int32_t tensor_of(int64_t code) const;

 private:
  struct Part {
    int32_t tensor = 0;
    Extent extent;
  };

  std::vector<Part> parts_of(
      const std::vector<std::vector<Extent>>& extents) const;
  int64_t code_of(int32_t tensor) const;
  int64_t* shared() const { return rank_.memory.numbers; }
  int64_t* limbs() const { return rank_.memory.numbers + 4; }
  void put_likeness();
  void look_now();
  void issue_look();
  // The runs of parts that have gradients, and the codes of their tensors.
  void collect(const std::vector<Part>& parts);
  void take_squares();

  LentRank& rank_;
  Arena memory_;
  Arena::Scope whole_life_{memory_};
  GradientNumbers* numbers_;
  int32_t* found_;
  int64_t* code_;
  std::vector<Part> looked_, counted_;
  std::vector<Engine::Stretch> runs_;
  std::vector<int64_t> codes_;
  std::vector<uint32_t> bits_;  // by run
  std::vector<WideSum> sums_;   // by run
  bool has_squares_ = false, has_norm_ = false;
};

}  // namespace canzona

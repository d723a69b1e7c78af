// What an owner and its helper (facts.h) have in common, whatever the rule: one
// segment, no norms, a triangle for the helper.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "canzona/base/check.h"
#include "canzona/linalg/engine.h"
#include "canzona/rules/strips.h"

namespace canzona {

class HelpedTransform : public SharedTransform {
 public:
  // The helper takes a factor of this side. The engine must outlive the
  // transform.
  HelpedTransform(Engine& engine, int64_t side, DType dtype)
      : engine_(engine), side_(side), dtype_(dtype) {}

  int segments() const override { return 1; }
  int64_t part_bytes() const override { return 0; }
  int64_t sum_elements() const override { return side_ * (side_ + 1) / 2; }
  int64_t bytes_per_sum() const override { return size_of(dtype_); }
  int64_t bytes_per_rounded() const override { return size_of(dtype_); }

  void begin(const SharedStep& step) override {
    CANZONA_CHECK(step.states.size() <= kept_.size(), step.states.size(),
                  " states");
    std::ranges::copy(step.states, kept_.begin());
    step_ = step;
    step_.states = {kept_.data(), step.states.size()};
  }
  void load(ConstRun piece, std::byte*) override { piece_ = piece; }
  bool normalize(const std::byte*, std::byte*) override { return true; }
  void round(int, const std::byte*, int64_t, std::byte*) override {
    CANZONA_CHECK(false, "a sum of one rank is not rounded");
  }

 protected:
  Run state(int number) const {
    return step_.states[static_cast<size_t>(number)];
  }

  Engine& engine_;
  const int64_t side_;
  const DType dtype_;
  // These belong to the current step.
  SharedStep step_;
  ConstRun piece_{};

 private:
  std::array<Run, 10> kept_{};
};

// True if a seat is that of an owner, and not of its helper.
inline bool is_owner(const TeamSeat& seat) {
  CANZONA_CHECK(seat.members == 2 && seat.head == (seat.member == 0), "member ",
                seat.member, " of ", seat.members, ", an owner and a helper");
  return seat.head;
}

}  // namespace canzona

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
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "canzona/runtime/step/gradient_check.h"

namespace canzona {

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

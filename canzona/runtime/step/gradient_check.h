// Looks at the gradients before a step: multiplies them by a factor, finds
// values that are not finite, computes the global norm, clips, and decides
// whether the step is skipped.
//
//   GradientCheck check(engines, {.numbers = numbers});
//   check.look(gradients, factor);
//   …                        reduce numbers[0] over all ranks by MAX
//   check.squares();       // if the norm is wanted, or a limit is given
//   …                        reduce numbers[4..11] by SUM
//   check.clip(limit);
//   check.judge(kInfinityBits);
//   engines.guarded(update);                // obeys check.skip()
//   GradientNumbers found = check.read();   // may wait for the device
//
// All numbers are in the engine's memory, so the host need not wait. They are
// integers: the largest magnitude, and squares that are scaled by a power of
// two and truncated, so that the norm does not depend on the order of addition.
// One thread. Nothing is allocated after the first step.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "canzona/linalg/gradient_numbers.h"
#include "canzona/runtime/step/step_engines.h"

namespace canzona::runtime {

// A number above the bits of every finite number that says where a gradient was
// not finite: in a rank's own gradient, which tells more and therefore is
// larger, or in a sum over ranks. The first tensor has the largest code.
int64_t nonfinite_code(int32_t tensor, int32_t rank, bool own);

struct NonfinitePlace {
  int32_t tensor = -1;  // -1: the number is no code
  int32_t rank = -1;    // that had it; -1: a sum
};
NonfinitePlace place_of_code(int64_t code);

// A rank's view of the gradients. Every element of the model is counted by one
// rank.
struct GradientRuns {
  // Examined, and multiplied by the factor first.
  std::vector<Engine::Stretch> looked;
  std::vector<int64_t> codes;  // by examined run: the code of its tensor
  // Multiplied by the factor without being examined.
  std::vector<Engine::Stretch> unlooked;
  std::vector<Engine::Stretch> counted;  // whose squares this rank adds
  std::vector<Engine::Stretch> clipped;
};

class GradientCheck {
 public:
  // Ranks reduce [0..3] by maximum and [4..11] by addition; the limbs of the
  // sum are the first four of these.
  static constexpr int64_t kNumNumbers = 16;
  static constexpr int64_t kFirstLimb = 4, kNumLimbs = 4;

  struct Settings {
    // kNumNumbers of the engine's memory; null: the check's own.
    int64_t* numbers = nullptr;
    // Gradients stay where they are, so that a device can repeat the check.
    bool in_place = false;
    // The results are sent to this process, so that read() waits for the check
    // alone. Otherwise it waits for all work issued so far.
    bool posts = false;
  };

  // The engines must outlive it; they get its skip().
  GradientCheck(StepEngines& engines, const Settings& settings);

  // Replaces the memory of the numbers.
  void bind(int64_t* numbers) { shared_ = numbers; }
  int64_t* numbers() const { return shared_; }

  // Accepts all gradients unless a later call decides otherwise. look() does
  // the same first if this was not called.
  void begin();
  // `runs` must outlive the step. Sets numbers[0]. squares() and clip() are of
  // the runs that this step has looked at.
  void look(const GradientRuns& runs, double factor = 1);
  // Raises numbers[0] to a code in the engine's memory.
  void report(const int64_t* code) { engines_.lead.raise(shared_, code); }
  // Sets numbers[1] and [2] so that ranks whose `likeness` differs find out.
  void compare(int64_t likeness);
  // Scales by the largest magnitude over all ranks.
  void squares();
  // Computes the norm from the sums over all ranks; multiplies gradients by
  // min(1, limit / norm) if the limit is above 0.
  void clip(double limit);
  // Decides whether to skip: if the largest number is at least `least`.
  void judge(int64_t least);

  const int32_t* skip() const { return &numbers_->skip; }
  GradientNumbers read();

 private:
  template <class Work>
  void run(const Work& work) const;
  void clear();
  void look_now(double factor);
  void issue_look(double factor);
  void post();

  StepEngines& engines_;
  const Settings settings_;
  Arena memory_;
  Arena::Scope whole_life_{memory_};
  GradientNumbers* numbers_;
  int32_t* found_;
  int64_t* code_;
  int64_t* shared_;
  const GradientRuns* runs_ = nullptr;
  bool is_begun_ = false;
  std::vector<uint32_t> bits_;  // by examined run
  std::vector<WideSum> sums_;   // by counted run
  std::vector<Engine::ScaledStretch> scaled_;
  std::array<std::unique_ptr<Notice>, 4> notices_;  // largest and norm
};

inline constexpr std::string_view kLargestLabel = "largest gradient";
inline constexpr std::string_view kNormLabel = "norm of the gradient";

}  // namespace canzona::runtime

// The result that every plan must give, bit for bit: one rank that has all
// tensors whole adds the gradients of all homes by the tree and updates one
// matrix after the other. It reads the plan's shapes, rules, phases and number
// of homes, and ignores owners, buckets and rounds.
//
//   Reference reference(plan, GradientKind::kRandom, {});
//   for (int64_t step = 1; step <= 20; ++step) reference.step(settings);
//   EXPECT_EQ(runtime.parameter_digest(), reference.parameter_digest());
//
// For tests. One thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "canzona/rules/optimizer.h"
#include "canzona/runtime/digest/rank_digest.h"
#include "canzona/runtime/gradients.h"
#include "canzona/runtime/runtime.h"

namespace canzona::runtime {

class Reference {
 public:
  // `plan` must outlive it. Reads adamw, groups and wire of the options.
  Reference(const Plan& plan, GradientKind gradients,
            const RuntimeOptions& options);

  // Ignores settings.gradient_factor, which belongs to the gradients.
  StepOutcome step(const StepSettings& settings);

  std::string parameter_digest();
  std::string state_digest();

 private:
  // A matrix, or a tensor that is updated element by element.
  struct Thing {
    std::string name;
    int32_t tensor = 0;
    std::vector<int64_t> rows = {};  // of the tensor
    int64_t cols = 1;
    Dims dims = {};
    int phase = 0;
    float* weights = nullptr;
    float* gradient = nullptr;
    TensorStates states = {};

    int64_t count() const { return std::ssize(rows) * cols; }
  };

  const Tensor& tensor(int32_t t) const {
    return plan_.model.tensors[static_cast<size_t>(t)];
  }
  void add_thing(Thing thing);
  std::vector<float> summed_gradient(int32_t tensor);
  void take_gradients();
  void scale(double factor);
  double norm();
  std::vector<uint32_t> parameter_bits(const Thing& thing);

  const Plan& plan_;
  GradientKind gradients_;
  DType wire_;
  RuleSet rules_;
  std::unique_ptr<Engine> engine_ = make_cpu_engine();
  Arena memory_;
  Arena::Scope whole_life_{memory_};
  std::vector<Thing> things_;
  int64_t steps_done_ = 0;
};

}  // namespace canzona::runtime

// For tests: parameters that are available only during a use, and gradients
// that leave when they are announced. Reads outside of a use, and sums after an
// announcement, give numbers that are not finite.
//
//   LentWeights weights(trial, parallel);
//   … decoder.backward(…)
//   weights.expect_all_left(1);
//   weights.totals;                // what has left, by tensor
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "canzona/model/test_decoder.h"

namespace canzona::model {

class LentWeights : public TrialWeights<float> {
 public:
  LentWeights(const DecoderTrial& trial, const Parallel& parallel)
      : TrialWeights(trial, parallel),
        totals(gradients),
        shapes_(trial.shapes),
        lent_(parameters),
        uses_(static_cast<size_t>(trial.config.architecture.layers + 2)),
        taken_(parameters.size()),
        announced_(parameters.size()) {
    for (auto& values : lent_) spoil(values);
    for (auto& values : gradients) spoil(values);
  }

  void wait(int32_t module) override {
    TrialWeights::wait(module);
    ++uses_.at(static_cast<size_t>(module));
    for (size_t t = 0; t < lent_.size(); ++t)
      if (module_of_tensor(t) == module) lent_[t] = parameters[t];
  }
  void release(int32_t module) override {
    TrialWeights::release(module);
    const int64_t left = --uses_.at(static_cast<size_t>(module));
    EXPECT_GE(left, 0) << "module " << module;
    for (size_t t = 0; t < lent_.size(); ++t) {
      if (module_of_tensor(t) != module) continue;
      if (left == 0) spoil(lent_[t]);
      // A tied head's gradient stays until the embedding's is added.
      EXPECT_FALSE(taken_[t] && module != 0) << shapes_.tensors[t].name;
    }
  }
  const float* parameter(int32_t tensor) override {
    return lent_.at(static_cast<size_t>(tensor)).data();
  }
  float* gradient(int32_t tensor) override {
    const auto t = static_cast<size_t>(tensor);
    if (!taken_.at(t)) std::ranges::fill(gradients[t], 0.0F);
    taken_[t] = true;
    most_taken = std::max(most_taken, std::ranges::count(taken_, true));
    return gradients[t].data();
  }
  void ready(int32_t tensor, bool last) override {
    const auto t = static_cast<size_t>(tensor);
    TrialWeights::ready(tensor, last);
    ++announced_.at(t);
    if (!taken_[t]) return;
    for (size_t i = 0; i < totals[t].size(); ++i)
      totals[t][i] += gradients[t][i];
    taken_[t] = false;
    spoil(gradients[t]);
  }

  // Expects every tensor of the modules to be announced this often, and none to
  // be held.
  void expect_all_left(int64_t times) const {
    for (size_t t = 0; t < taken_.size(); ++t) {
      EXPECT_EQ(announced_[t], times) << shapes_.tensors[t].name;
      EXPECT_FALSE(taken_[t]) << shapes_.tensors[t].name;
    }
    for (const int64_t uses : uses_) EXPECT_EQ(uses, 0);
    EXPECT_EQ(releases, waits);
  }

  std::vector<std::vector<float>> totals;
  int64_t most_taken = 0;  // gradients at once

 private:
  static void spoil(std::vector<float>& values) {
    std::ranges::fill(values, std::numeric_limits<float>::quiet_NaN());
  }
  int32_t module_of_tensor(size_t t) const {
    const Tensor& tensor = shapes_.tensors[t];
    if (tensor.layer >= 0) return tensor.layer + 1;
    return tensor.role == Role::kEmbedding
               ? 0
               : static_cast<int32_t>(std::ssize(uses_)) - 1;
  }

  Model shapes_;
  std::vector<std::vector<float>> lent_;
  std::vector<int64_t> uses_;  // now, by module
  std::vector<bool> taken_;    // gradients
  std::vector<int64_t> announced_;
};

}  // namespace canzona::model

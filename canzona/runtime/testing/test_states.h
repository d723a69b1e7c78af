// The state of a run as whole tensors, for tests: assembled from what ranks
// provide, and distributed to the ranks of another run.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "canzona/runtime/runtime.h"

namespace canzona::runtime {

class WholeStates {
 public:
  struct Whole {
    std::vector<int64_t> shape;
    std::vector<float> values;
    std::vector<int> given;  // how often, by element
  };

  // Collects this rank's boxes. Ranks may call it concurrently.
  void collect(Runtime& runtime) {
    runtime.for_each_state([&](const RankState& state) {
      if (!state.given) return;
      std::vector<float> values(static_cast<size_t>(state.elements));
      runtime.get_state(state, values);
      const std::scoped_lock lock(mutex_);
      Whole& whole = tensors_[state.name()];
      size_t elements = 1;
      for (int64_t n : state.shape) elements *= static_cast<size_t>(n);
      if (whole.values.empty())
        whole = {state.shape, std::vector<float>(elements),
                 std::vector<int>(elements)};
      EXPECT_EQ(whole.shape, state.shape) << state.name();
      for (size_t i = 0; i < values.size(); ++i) {
        const size_t at = place_of(state, i);
        whole.values[at] = values[i];
        ++whole.given[at];
      }
    });
    const std::scoped_lock lock(mutex_);
    steps_ = runtime.steps_done();
  }

  // Sets all boxes of this rank.
  void hand_to(Runtime& runtime) const {
    runtime.for_each_state([&](const RankState& state) {
      const auto found = tensors_.find(state.name());
      ASSERT_NE(found, tensors_.end()) << state.name();
      ASSERT_EQ(found->second.shape, state.shape) << state.name();
      std::vector<float> values(static_cast<size_t>(state.elements));
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = found->second.values[place_of(state, i)];
      runtime.set_state(state, values);
    });
    runtime.take_over(steps_);
  }

  const std::map<std::string, Whole>& tensors() const { return tensors_; }

 private:
  // Returns the index in the whole tensor of element i of a box, both
  // row-major.
  static size_t place_of(const StateBox& box, size_t i) {
    size_t at = 0, stride = 1;
    for (size_t d = box.shape.size(); d-- > 0;) {
      const auto count = static_cast<size_t>(box.count[d]);
      at += (static_cast<size_t>(box.first[d]) + i % count) * stride;
      i /= count;
      stride *= static_cast<size_t>(box.shape[d]);
    }
    return at;
  }

  std::mutex mutex_;
  std::map<std::string, Whole> tensors_;
  int64_t steps_ = 0;
};

}  // namespace canzona::runtime

// The result of a trial as bits that tests compare, and runs that go on from
// each other's states.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "canzona/runtime/testing/test_states.h"
#include "canzona/runtime/testing/test_trial.h"

namespace canzona::runtime {

struct Bits {
  std::string parameters, states;
  auto operator<=>(const Bits&) const = default;
};

inline Bits bits_of(const Trial& trial) {
  const TrialResult result = run_trial(trial);
  return {result.parameters, result.states};
}

// Four steps of the first plan of a pair and four of the second, which begins
// with the first one's states, must give the bits of eight steps of `straight`.
// States have the same names and shapes under all plans, and ranks give each
// element once.
inline void expect_states_go_on(
    const Plan& straight,
    const std::vector<std::pair<const Plan*, const Plan*>>& pairs) {
  const Bits expected = bits_of({.plan = straight, .steps = 8});
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const auto& [from, to] : pairs) {
    WholeStates states;
    run_trial({.plan = *from, .steps = 4, .at_end = [&](Runtime& r) {
                 states.collect(r);
               }});
    std::map<std::string, std::vector<int64_t>> found;
    for (const auto& [name, tensor] : states.tensors()) {
      found[name] = tensor.shape;
      for (const int times : tensor.given) ASSERT_EQ(times, 1) << name;
    }
    if (shapes.empty()) shapes = found;
    EXPECT_EQ(found, shapes);
    EXPECT_EQ(bits_of({.plan = *to,
                       .steps = 4,
                       .set_parameters = [&](Runtime& r) { states.hand_to(r); },
                       .number_of_step = [](int64_t s) { return s + 4; }}),
              expected);
  }
}

}  // namespace canzona::runtime

// Teams that share a matrix, beside one rank that has all of it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/rules/test_matrices.h"
#include "canzona/rules/test_steps.h"
#include "canzona/rules/test_team.h"

namespace canzona::rules::team_steps {

using Values = std::vector<float>;

inline constexpr double kRate = 0.01;

inline Values random_values(int64_t count, uint64_t seed) {
  Stream stream(seed);
  Values values(static_cast<size_t>(count));
  for (float& x : values) x = static_cast<float>(stream.uniform());
  return values;
}

struct Variant {
  const char* name;
  RuleOptions options;
};

inline std::vector<Variant> variants() {
  return {
      {"default", {}},
      {"nvidia", {{"preset", "nvidia"}}},
      {"every_step", {{"precondition_frequency", "1"}}},
      {"original_space", {{"momentum_basis", "original"}, {"sort", "after"}}},
      {"no_first_moment", {{"beta1", "0"}, {"start_step", "3"}}},
      {"kl", {{"kl", "on"}, {"first_update", "use"}}},
      {"tolerant", {{"qr_tolerance", "0.3"}, {"power_steps", "2"}}},
      {"eigh", {{"refresh", "eigh"}, {"phases", "3"}}},
      {"cholesky", {{"refresh", "cholesky_qr"}, {"nesterov", "on"}}},
  };
}

// The part of a state that a member keeps.
inline Values box_of(const Values& whole, const TeamState& state) {
  if (state.own.shape == state.in_matrix.shape) return whole;
  if (state.own.shape.size() == 1)
    return {whole[static_cast<size_t>(state.in_matrix.first[0])]};
  Values out;
  for (int64_t i = 0; i < state.own.shape[0]; ++i)
    for (int64_t j = 0; j < state.own.shape[1]; ++j)
      out.push_back(whole[static_cast<size_t>((state.in_matrix.first[0] + i) *
                                                  state.in_matrix.shape[1] +
                                              state.in_matrix.first[1] + j)]);
  return out;
}

inline void expect_states(const TestTeam<float>& team,
                          const TestTensor<float>& whole, MatrixShape shape,
                          int members) {
  for (int member = 0; member < members; ++member) {
    const std::vector<TeamState> kept =
        whole.rule().facts().team_states(shape, members, member);
    for (size_t i = 0; i < kept.size(); ++i)
      ASSERT_EQ(team.state(static_cast<size_t>(member), i),
                box_of(whole.state(kept[i].in_matrix.name), kept[i]))
          << kept[i].in_matrix.name << " of member " << member;
  }
}

using MakeEngine = std::function<std::unique_ptr<Engine>()>;

// A team and one rank take eight steps: the same updates and states.
inline void expect_team_as_one(const RuleOptions& options, MatrixShape shape,
                               int members, int phase,
                               const MakeEngine& make_engine,
                               const char* name = "soap") {
  SCOPED_TRACE(cat(to_string(shape), " ", members, " members, phase ", phase));
  const auto rule = make_rule(name, options, DType::kFp32);
  const auto engine = make_cpu_engine();
  const int64_t count = shape.rows * shape.cols;
  TestTensor<float> whole(make_rule(name, options, DType::kFp32),
                          {shape.rows, shape.cols}, random_values(count, 1));
  whole.phase = phase;
  TestTeam<float> team(*rule, shape, members, 0, make_engine);
  for (uint64_t t = 1; t <= 8; ++t) {
    const Values grad = random_values(count, t + 1);
    whole.step(*engine, grad, kRate);
    const Values update = team.transform(grad, static_cast<int64_t>(t), phase);
    expect_same_bits(update, whole.update, cat("update ", t));
    expect_states(team, whole, shape, members);
  }
}

}  // namespace canzona::rules::team_steps

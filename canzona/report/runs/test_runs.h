// Synthetic runs for tests of the views.
#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "canzona/report/runs/run.h"

namespace canzona::report {

// A loss that falls from 5 towards `floor`, evaluated every tenth step.
struct RunWish {
  std::string name = "muon";
  int64_t steps = 200;
  double floor = 1.5;
  int ranks = 4;
  std::string digest = "aa";
};

inline StepMetrics step_of(const RunWish& wish, int64_t number) {
  StepMetrics m;
  m.step = number;
  const double progress =
      static_cast<double>(number) / static_cast<double>(wish.steps);
  m.loss = wish.floor + (5 - wish.floor) * std::exp(-4 * progress) +
           (number % 2 == 0 ? 0.03 : -0.03);
  m.grad_norm = 2 - progress;
  m.lr = 0.02 * (1 - progress);
  m.tokens_per_second = 10000;
  m.optimizer_ms = 3;
  m.comm_ms = 1;
  m.hidden_fraction = 0.9;
  m.memory_bytes = 100 << 20;
  m.tokens = 2048 * number;
  m.seconds = 0.2 * static_cast<double>(number);
  if (number % 10 == 0) m.eval_loss = m.loss + 0.05;
  return m;
}

inline TrainingRun make_run(const RunWish& wish) {
  TrainingRun run;
  run.name = wish.name;
  run.folder = "runs/" + wish.name;
  for (int64_t i = 1; i <= wish.steps; ++i)
    run.steps.push_back(step_of(wish, i));
  RunSummary s;
  s.steps = wish.steps;
  s.tokens = 2048 * wish.steps;
  s.seconds = 0.2 * static_cast<double>(wish.steps);
  s.final_loss = run.final_loss();
  s.eval_loss = run.eval_loss();
  s.digest = wish.digest;
  s.model = "tiny";
  s.parameters = 1'234'567;
  s.mesh = "dp=2,tp=2";
  s.ranks = wish.ranks;
  s.transport = "thread";
  s.rule = wish.name;
  s.strategy = "balanced";
  s.config = {{"rule", {{"name", wish.name}}}, {"seed", 1}};
  s.data = "synthetic";
  s.environment.cpu = "a CPU";
  for (int i = 0; i < wish.ranks; ++i)
    s.per_rank.push_back({.rank = i,
                          .forward_backward_seconds = 30,
                          .optimizer_seconds = 4,
                          .waited_seconds = 2,
                          .comm_busy_seconds = 5,
                          .other_seconds = 4,
                          .predicted_bytes = 120 << 20,
                          .reserved_bytes = 100 << 20,
                          .owned_matrices = 3,
                          .load = i == 0 ? 1.25 : 0.9});
  run.summary = std::move(s);
  return run;
}

}  // namespace canzona::report

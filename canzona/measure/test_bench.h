// A bench over a model of a few thousand parameters, for tests.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "canzona/measure/step_bench.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::measure {

struct TestBenchWish {
  std::string mesh = "dp=2";
  std::string rule = "muon";
  int32_t ranks_per_node = 2;
};

inline Plan bench_plan(const TestBenchWish& wish, const StepChoice& choice,
                       const Link& link = {}) {
  PlanOptions options;
  options.strategy = choice.strategy;
  options.bucket_elements = 3000;
  options.zero.sizes = choice.sizes;
  options.ranks_per_node = wish.ranks_per_node;
  put_link(link, options);
  const auto facts =
      make_rule_facts(wish.rule, with_device(wish.rule, {}, "cpu"));
  return make_plan({toy_model(), parse_mesh(wish.mesh), *facts, options});
}

// Two timed steps and an iteration of each.
inline StepBenchRequest test_bench(const TestBenchWish& wish,
                                   std::vector<StepChoice> choices) {
  StepBenchRequest request;
  request.choices = std::move(choices);
  request.plan = [wish](const StepChoice& choice, const Link& link) {
    return bench_plan(wish, choice, link);
  };
  request.run = on_threads(parse_mesh(wish.mesh).world(),
                           {.ranks_per_node = wish.ranks_per_node});
  request.trial.steps = 3;
  request.trial.iterations = 1;
  request.compute_seconds = 0.002;
  return request;
}

// Every size of ZeRO with every overlap.
inline std::vector<StepChoice> all_cuts(const std::string& mesh) {
  std::vector<StepChoice> choices;
  for (const ZeroSizes& sizes : all_zero_sizes(parse_mesh(mesh).homes()))
    for (const Overlap overlap :
         {Overlap::kNone, Overlap::kMain, Overlap::kBackground})
      choices.push_back({"balanced", sizes, overlap});
  return choices;
}

}  // namespace canzona::measure

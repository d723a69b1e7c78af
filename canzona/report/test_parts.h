// Plans in parts for the tests of the views.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/report/report_plan.h"

namespace canzona {

struct PartsWish {
  std::string mesh = "dp=2,ep=2,tp=2";
  ZeroSizes dense = {4, 2, 2};
  ZeroSizes experts = {};
  std::string strategy = "balanced";
};

inline ReportPlan shown_in_parts(const PartsWish& wish = {}) {
  PlanOptions options;
  options.zero.sizes = wish.dense;
  options.zero.experts = wish.experts;
  options.strategy = wish.strategy;
  options.ranks_per_node = 2;
  ReportPlan shown;
  shown.plan = plan_of(toy_moe(), wish.mesh, options);
  shown.ranks = predict(shown.plan);
  shown.balance = measure_balance(shown.plan);
  return shown;
}

// Slices, replicas, both, one kind alone; with and without tp, pp, cp and ep.
inline std::vector<PartsWish> wishes_of_parts() {
  return {{},
          {.mesh = "dp=2,ep=2"},
          {.mesh = "dp=2,ep=2,pp=2", .dense = {4, 4, 4}},
          {.mesh = "dp=1,cp=2,ep=2,tp=2", .dense = {4, 4, 2}},
          {.mesh = "dp=4,ep=2", .dense = {4, 2, 2}, .experts = {2, 1, 2}},
          {.mesh = "dp=2,ep=2,tp=2", .dense = {4, 1, 1}, .experts = {2, 2, 2}},
          {.mesh = "dp=4,tp=2", .dense = {4, 1, 4}, .experts = {2, 2, 1}},
          {.mesh = "dp=2,ep=2", .dense = {2, 2, 2}, .strategy = "replicated"}};
}

}  // namespace canzona

// Small real plans for the tests of the views.
#pragma once

#include <string>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/testing/test_toy_model.h"  // strategy_names
#include "canzona/report/shown_plan.h"
#include "canzona/shapes/read_model.h"

namespace canzona::report {

// Small real plans for the tests of the views.
struct PlanWish {
  std::string strategy = "balanced";
  std::string mesh = "dp=2,tp=2";
  std::string rule = "muon";
  RuleOptions rule_options = {};
  int num_layers = 3;
  int64_t bucket_elements = 5000;
  std::string zero = "zero1";
  int32_t ranks_per_node = 8;
};

// Layers of an up (cut by rows), a down (cut by columns) and a norm.
inline Model layered_model(int num_layers) {
  std::string json;
  for (int i = 0; i < num_layers; ++i)
    json += cat(json.empty() ? "[" : ",", R"({"name": "layers.)", i,
                R"(.up", "shape": [64, 32], "tp": "rows"}, {"name": "layers.)",
                i, R"(.down", "shape": [32, 64], "tp": "columns"},)",
                R"({"name": "layers.)", i, R"(.norm", "shape": [32]})");
  Model model = model_from_shapes(json + "]", "layered");
  route(model, {});
  return model;
}

inline ReportPlan shown_plan(const PlanWish& wish = {}) {
  const Model model = layered_model(wish.num_layers);
  const auto rule = make_rule_facts(wish.rule, wish.rule_options);
  PlanOptions options;
  options.strategy = wish.strategy;
  options.bucket_elements = wish.bucket_elements;
  const Mesh mesh = parse_mesh(wish.mesh);
  options.zero.sizes = parse_zero(wish.zero, mesh.homes());
  options.ranks_per_node = wish.ranks_per_node;
  ReportPlan shown;
  shown.plan = make_plan(
      {.model = model, .mesh = mesh, .rule = *rule, .options = options});
  shown.ranks = predict(shown.plan);
  shown.balance = measure_balance(shown.plan);
  shown.plan_seconds = 0.001;
  return shown;
}

// Plans in parts for the tests of the views.
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

// Slices, replicas, both, and one kind alone; with and without tp, pp, cp, ep.
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

}  // namespace canzona::report

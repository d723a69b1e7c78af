// Plans of small models for the tests of this folder.
#pragma once

#include <string>
#include <vector>

#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::runtime {

struct PlanWish {
  std::string mesh = "dp=1";
  std::string strategy = "balanced";
  // A rule, or a rule and a preset: "muon_nanochat".
  std::string rule = "muon";
  RuleOptions options = {};
  std::string split = "none";
  std::string micro_groups = {};
  std::string device = "cpu";
  int64_t bucket_elements = 3000;
  int64_t capacity_bytes = 8192;
  DType parameters = DType::kFp32;
  MasterForm master = MasterForm::kFp32;
  std::string zero = "zero1";
  ZeroOptions zero_options = {};  // except the sizes of dense tensors
  int32_t ranks_per_node = 8;
};

inline Plan small_plan(const Model& model, const PlanWish& wish) {
  PlanOptions options;
  options.strategy = wish.strategy;
  options.splits = parse_splits(wish.split);
  options.micro_groups = wish.micro_groups;
  options.bucket_elements = wish.bucket_elements;
  options.capacity_bytes = wish.capacity_bytes;
  options.parameters = wish.parameters;
  options.master = wish.master;
  options.ranks_per_node = wish.ranks_per_node;
  options.zero = wish.zero_options;
  const Mesh mesh = parse_mesh(wish.mesh);
  options.zero.sizes = parse_zero(wish.zero, mesh.homes());
  const size_t end = wish.rule.find('_');
  const std::string rule = wish.rule.substr(0, end);
  RuleOptions given = wish.options;
  if (end != std::string::npos) given["preset"] = wish.rule.substr(end + 1);
  const auto facts =
      make_rule_facts(rule, with_device(rule, given, wish.device));
  return make_plan({model, mesh, *facts, options});
}

// Options with which a few steps include refreshes.
inline RuleOptions quick(const std::string& rule) {
  if (rule == "soap" || rule == "shampoo")
    return {{"precondition_frequency", "3"}};
  return {};
}

inline std::vector<std::string> many_meshes() {
  return {"dp=1", "dp=2",      "dp=4",      "dp=7",          "tp=2",
          "tp=4", "dp=2,tp=2", "dp=4,tp=2", "dp=2,ep=2,tp=2"};
}

}  // namespace canzona::runtime

// Every family of models that a config.json may be of, planned and validated.
#include <gmock/gmock.h>

#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/testing/test_random.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::every_family_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// All configurations of tests/data, a few layers of each: dense ones, those
// with experts, linear and full attention are among them.
std::vector<Model> family_models(int64_t layers, bool fused) {
  std::vector<std::filesystem::path> files;
  for (const auto& file :
       std::filesystem::directory_iterator(CANZONA_TEST_DATA "/configs")) {
    files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<Model> models;
  for (const auto& file : files) {
    models.push_back(
        read_model(file.string(), {.fused = fused, .layers = layers}));
    route(models.back(), {});
  }
  return models;
}

// GPT-2's 50257 words do not divide.
bool can_be_cut(const Model& model) {
  return model.tensors.front().rows() % 2 == 0;
}

void expect_sound(const Model& model, const std::string& mesh,
                  const PlanOptions& options) {
  SCOPED_TRACE(cat(model.name, " on ", mesh, ", ", options.strategy, ", ",
                   to_string(options.splits)));
  const auto facts = make_rule_facts("muon", {});
  const Plan plan = make_plan({model, parse_mesh(mesh), *facts, options});
  EXPECT_THAT(validate(plan), IsEmpty());
  const std::string json = plan_to_json(plan);
  EXPECT_EQ(plan_to_json(plan_from_json(json, "plan.json").plan), json);
}

TEST(EveryFamily, HasSoundPlansOnMeshes) {
  const PlanOptions options = with_strategy("balanced");
  for (const Model& model : family_models(4, false)) {
    expect_sound(model, "dp=2,pp=2", options);
    if (can_be_cut(model)) expect_sound(model, "dp=2,tp=4", options);
    if (model.num_experts > 0) expect_sound(model, "dp=2,tp=2,ep=2", options);
  }
  for (const Model& model : family_models(4, true)) {
    expect_sound(model, can_be_cut(model) ? "dp=2,tp=4" : "dp=4", options);
  }
}

TEST(EveryFamily, HasSoundPlansOfPieces) {
  int planned = 0;
  for (const Model& model : family_models(4, false)) {
    const bool has_parts =
        std::any_of(model.tensors.begin(), model.tensors.end(),
                    [](const Tensor& t) { return !t.sections.empty(); });
    if (!has_parts) continue;
    PlanOptions options = with_strategy("balanced");
    options.splits.qkv = true;
    expect_sound(model, "dp=2,tp=2", options);
    options.splits.head = true;
    expect_sound(model, "dp=2,tp=2", options);
    ++planned;
  }
  EXPECT_GT(planned, 12);
}

TEST(EveryFamily, HasSoundPlansOfEveryStrategy) {
  for (const Model& model : family_models(1, false)) {
    for (const StrategyInfo& strategy : strategies()) {
      const std::string mesh = can_be_cut(model) ? "dp=4,tp=2" : "dp=4";
      expect_sound(model, mesh, with_strategy(strategy.name));
    }
  }
}

TEST(EveryFamily, HasSoundPlansOfHierarchicalZero) {
  for (const Model& model : family_models(4, false)) {
    PlanOptions options = with_strategy("balanced");
    options.zero.sizes = {4, 2, 2};
    expect_sound(model, "dp=4", options);
  }
}

TEST(EveryFamily, WhatCannotBeCutIsNamed) {
  const Model model = read_model(CANZONA_TEST_DATA "/configs/gpt2.json", {});
  try {
    check_mesh(parse_mesh("tp=2"), model);
    FAIL() << "50257 words were cut in two";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                ::testing::AllOf(HasSubstr("50257"), HasSubstr("wte")));
  }
}

}  // namespace
}  // namespace canzona::plan::every_family_test

// The same input gives the same bytes of plan.json.
#include <gmock/gmock.h>

#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::determinism_test {
namespace {

// Entries of a list of shapes: layers of a small transformer, and what is
// outside of them.
std::vector<std::string> entries() {
  std::vector<std::string> out{
      R"({"name": "model.embed_tokens.weight", "shape": [64, 16]})",
      R"({"name": "model.norm.weight", "shape": [16]})",
      R"({"name": "lm_head.weight", "shape": [64, 16]})"};
  for (int layer = 0; layer < 12; ++layer) {
    const std::string prefix = cat(R"({"name": "model.layers.)", layer, ".");
    for (const char* rest :
         {R"(self_attn.q_proj.weight", "shape": [16, 16], "tp": "rows"})",
          R"(self_attn.o_proj.weight", "shape": [16, 16], "tp": "columns"})",
          R"(mlp.up_proj.weight", "shape": [48, 16], "tp": "rows"})",
          R"(mlp.gate_proj.weight", "shape": [48, 16], "tp": "rows"})",
          R"(mlp.down_proj.weight", "shape": [16, 48], "tp": "columns"})",
          R"(input_layernorm.weight", "shape": [16]})"}) {
      out.push_back(prefix + rest);
    }
  }
  return out;
}

std::string plan_text(const std::vector<std::string>& list,
                      const std::string& strategy, const RuleChoice& rule) {
  const Model model = model_from_shapes(cat("[", join(list, ","), "]"), "list");
  PlanOptions options = with_strategy(strategy);
  options.bucket_elements = 2000;
  return plan_to_json(plan_of(model, "dp=4,tp=2", options, rule));
}

TEST(Determinism, PlansDoNotDependOnTheOrderOfEntries) {
  Random random(90);
  const RuleChoice soap{"soap",
                        {{"precondition_frequency", "8"}, {"phases", "4"}}};
  for (const StrategyInfo& s : strategies()) {
    for (const RuleChoice& rule : {RuleChoice{}, soap}) {
      const std::string expected = plan_text(entries(), s.name, rule);
      for (int trial = 0; trial < 5; ++trial) {
        std::vector<std::string> list = entries();
        random.shuffle(list);
        ASSERT_NE(list, entries());
        EXPECT_EQ(plan_text(list, s.name, rule), expected)
            << s.name << ", " << rule.name;
      }
    }
  }
}

TEST(Determinism, PlansDependOnTheNames) {
  std::vector<std::string> list = entries();
  const std::string before = plan_text(list, "balanced", {});
  const size_t at = list.back().find("input_layernorm");
  list.back().replace(at, 15, "other_layernorm");
  EXPECT_NE(plan_text(list, "balanced", {}), before);
}

TEST(Determinism, PlansOfPresetsAreTheSameEachTime) {
  for (const char* preset : {"qwen3-1.7b", "qwen3-30b-a3b"}) {
    const Model model = read_model(preset, {});
    EXPECT_EQ(plan_to_json(plan_of(model, "dp=16,tp=4")),
              plan_to_json(plan_of(model, "dp=16,tp=4")));
  }
}

}  // namespace
}  // namespace canzona::plan::determinism_test

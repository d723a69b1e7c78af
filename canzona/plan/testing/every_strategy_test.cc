// These tests hold for every strategy and every mode of micro-groups.
#include <gmock/gmock.h>

#include "canzona/plan/testing/test_random.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::every_strategy_test {
namespace {

using ::testing::IsEmpty;

std::vector<PlanOptions> all_choices() {
  std::vector<PlanOptions> out;
  for (const StrategyInfo& s : strategies()) {
    out.push_back(with_strategy(s.name));
    if (s.default_micro_groups.empty()) continue;
    for (const std::string& mode : micro_group_modes()) {
      out.push_back(with_strategy(s.name, mode));
    }
  }
  return out;
}

// Every tensor of the matrix rule has a home that exists; every matrix an owner
// that exists; what homes keep of the buckets adds up to the shards.
void expect_complete(const Plan& plan) {
  std::vector<int64_t> elements(plan.parts[0].buffers.size(), 0);
  for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
    const Tensor& tensor = plan.model.tensors[t];
    const Buffer& buffer = plan.parts[0].buffer_of(static_cast<int32_t>(t));
    const bool placed =
        tensor.matrix_rule && plan.traffic != Traffic::kAllReduce;
    EXPECT_EQ(plan.parts[0].home[t] >= 0, placed) << tensor.name;
    EXPECT_LT(plan.parts[0].home[t], buffer.num_homes) << tensor.name;
    if (tensor.matrix_rule) {
      elements[static_cast<size_t>(&buffer - plan.parts[0].buffers.data())] +=
          tensor.elements() / (tensor.cut == Cut::kNone ? 1 : plan.mesh.tp);
    }
  }
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    for (int32_t t : plan.parts[0].owners[m]) {
      EXPECT_GE(t, 0);
      EXPECT_LT(t, plan.mesh.tp);
    }
  }
  for (const Bucket& bucket : plan.parts[0].buckets) {
    int64_t& left = elements[static_cast<size_t>(bucket.buffer)];
    if (!bucket.cuts.empty()) left -= bucket.cuts.back();
  }
  const bool scattered = plan.traffic == Traffic::kReduceScatter ||
                         plan.traffic == Traffic::kPadded;
  for (int64_t left : elements) {
    if (scattered) {
      EXPECT_EQ(left, 0);
    }
  }
}

void expect_sound_everywhere(const Model& model, const Mesh& mesh,
                             const RuleChoice& rule, PlanOptions common) {
  for (PlanOptions options : all_choices()) {
    options.bucket_elements = common.bucket_elements;
    options.capacity_bytes = common.capacity_bytes;
    options.splits = common.splits;
    options.parameters = common.parameters;
    SCOPED_TRACE(cat(to_string(mesh), ", ", rule.name, ", ", options.strategy,
                     ", ", options.micro_groups));
    const auto facts = make_rule_facts(rule.name, rule.options);
    const Plan plan = make_plan({model, mesh, *facts, options});
    EXPECT_THAT(validate(plan), IsEmpty());
    expect_complete(plan);
  }
}

// One layer of odd shapes on dp=2,tp=2 under all strategies.
TEST(EveryStrategy, GivesASoundPlan) {
  const Model model = model_of({matrix_tensor("a", 6, 5, Cut::kRows, 0),
                                matrix_tensor("b", 1, 4, Cut::kColumns, 0),
                                matrix_tensor("c", 7, 3, Cut::kNone, 0),
                                adamw_tensor("norm", 13, 0)});
  EXPECT_EQ(all_choices().size(), 6 + 4 * 4);
  expect_sound_everywhere(model, parse_mesh("dp=2,tp=2"), {}, {});
}

TEST(EveryStrategy, GivesASoundPlanForOddModelsAndMeshes) {
  Random random(80);
  for (int trial = 0; trial < 120; ++trial) {
    const Mesh mesh = random_mesh(random);
    const Model model = random_model(random, mesh);
    SCOPED_TRACE(cat("trial ", trial));
    expect_sound_everywhere(model, mesh, random_rule(random),
                            random_options(random));
    if (HasFailure()) return;
  }
}

// Fused and separate transformers, split in all ways, dense and with experts.
TEST(EveryStrategy, GivesASoundPlanForSplitTransformers) {
  Random random(81);
  for (int trial = 0; trial < 60; ++trial) {
    const int32_t tp = random.pick<int32_t>({1, 2, 4, 8});
    const bool moe = random.coin();
    const std::string config = cat(
        R"({"model_type": ")", moe ? "qwen3_moe" : "qwen3",
        R"(", "hidden_size": 24, "head_dim": 4, "num_attention_heads": 16,)",
        R"("num_key_value_heads": )", random.pick<int64_t>({4, 8, 16}),
        R"(, "intermediate_size": 40, "moe_intermediate_size": 16,)",
        R"("num_experts": 4, "num_experts_per_tok": 2, "vocab_size": 64,)",
        R"("num_hidden_layers": 4})");
    const Model model =
        model_from_config(config, "toy", {.fused = random.coin()});
    PlanOptions options = random_options(random);
    options.splits = parse_splits(random.pick<std::string>(
        {"none", "qkv", "head", "gate-up", "qkv,gate-up", "head,gate-up"}));
    Mesh mesh = random_mesh(random);
    mesh.tp = tp;
    if (!moe) mesh.ep = 1;
    SCOPED_TRACE(cat("trial ", trial, ", split ", to_string(options.splits)));
    expect_sound_everywhere(model, mesh, random_rule(random), options);
    if (HasFailure()) return;
  }
}

TEST(EveryStrategy, PutsOneMatrixOn512Ranks) {
  expect_sound_everywhere(model_of({matrix_tensor("only", 16, 24, Cut::kRows)}),
                          parse_mesh("dp=32,tp=16"), {}, {});
}

TEST(EveryStrategy, TakesAModelOfAdamwTensorsAlone) {
  expect_sound_everywhere(
      model_of({adamw_tensor("a", 1), adamw_tensor("b", 9)}),
      parse_mesh("dp=4,tp=2"), {}, {});
}

}  // namespace
}  // namespace canzona::plan::every_strategy_test

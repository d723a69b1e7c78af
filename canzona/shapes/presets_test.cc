#include "canzona/shapes/architecture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>

#include "canzona/shapes/names.h"
#include "canzona/shapes/read_model.h"

namespace canzona::shapes::presets_test {
namespace {

using testing::HasSubstr;

int64_t parameters(const Model& model) {
  int64_t sum = 0;
  for (const Tensor& tensor : model.tensors) sum += tensor.elements();
  return sum;
}

int64_t matrix_tensors(const Model& model) {
  return std::count_if(model.tensors.begin(), model.tensors.end(),
                       [](const Tensor& t) { return t.matrix_rule; });
}

TEST(Presets, AreModelsByName) {
  const Model model = read_model("qwen3-32b", {.fused = true});
  EXPECT_EQ(model.name, "qwen3-32b");
  EXPECT_EQ(model.num_layers, 64);
  EXPECT_EQ(model.query_heads, 64);
  EXPECT_EQ(model.kv_heads, 8);
  EXPECT_EQ(model.num_experts, 0);
  EXPECT_TRUE(model.fused);
  EXPECT_EQ(find_preset("qwen3-33b"), nullptr);
  EXPECT_EQ(presets().size(), 19u);
  EXPECT_EQ(presets()[5].name, "qwen3-32b");
  EXPECT_EQ(presets()[5].description,
            "64 layers, hidden 5120, 64/8 heads, ffn 25600");
}

// The totals published by the models' authors. deepseek-v3: 671,026,419,200
// minus the router's balancing offsets (58 layers of 256), which no optimizer
// updates, and without its 62nd layer.
TEST(Presets, HaveThePublishedNumberOfParameters) {
  const std::map<std::string, int64_t> published = {
      {"qwen3-0.6b", 596'049'920},
      {"qwen3-1.7b", 1'720'574'976},
      {"qwen3-4b", 4'022'468'096},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-14b", 14'768'307'200},
      {"qwen3-32b", 32'762'123'264},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"qwen3-235b-a22b", 235'093'634'560},
      {"llama-3-8b", 8'030'261'248},
      {"llama-3-70b", 70'553'706'496},
      {"deepseek-v3", 671'026'419'200 - 58 * 256},
      {"deepseek-v2", 235'741'434'880},
      {"kimi-k2", 1'026'408'232'448 - 60 * 384},
      {"mixtral-8x7b", 46'702'792'704},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen3-next-80b-a3b", 79'674'391'296},
      {"gpt-oss-20b", 20'914'757'184},
      {"gpt-oss-120b", 116'829'156'672},
      {"gpt2", 124'439'808}};
  ASSERT_EQ(published.size(), presets().size());
  for (const auto& [name, count] : published) {
    EXPECT_EQ(parameters(read_model(name, {.fused = false})), count) << name;
    EXPECT_EQ(parameters(read_model(name, {.fused = true})), count) << name;
  }
}

TEST(Presets, HaveTheExpectedNumberOfMatrixTensors) {
  struct Case {
    const char* name;
    bool fused;
    int64_t count;
  };
  for (const Case& c :
       {Case{"qwen3-32b", true, 256}, Case{"qwen3-32b", false, 448},
        Case{"qwen3-235b-a22b", false, 36'472},
        Case{"qwen3-235b-a22b", true, 24'252},
        Case{"qwen3-30b-a3b", true, 12'384},
        Case{"qwen3-30b-a3b", false, 18'624},
        // 61 x 5 of attention, 3 dense layers, 58 x (1 shared + 256) experts.
        Case{"deepseek-v3", false, 61 * 5 + 3 * 3 + 58 * 257 * 3},
        Case{"deepseek-v3", true, 61 * 5 + 3 * 2 + 58 * 257 * 2}}) {
    const Model model = read_model(c.name, {.fused = c.fused});
    EXPECT_EQ(matrix_tensors(model), c.count) << c.name << c.fused;
  }
}

TEST(Presets, NamesAreDistinctAndTensorsInOrder) {
  for (const PresetInfo& preset : presets()) {
    const Model model = read_model(preset.name, {});
    std::set<std::string_view> names;
    int32_t layer = -1;
    for (const Tensor& tensor : model.tensors) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
      if (tensor.layer < 0) continue;
      EXPECT_GE(tensor.layer, layer) << tensor.name;
      layer = tensor.layer;
    }
    EXPECT_EQ(layer + 1, model.num_layers);
    EXPECT_EQ(model.tensors.front().role, Role::kEmbedding);
  }
}

TEST(Presets, EveryTensorHasAPlace) {
  for (const PresetInfo& preset : presets()) {
    const Model model = read_model(preset.name, {});
    for (const Tensor& tensor : model.tensors)
      EXPECT_FALSE(is_unplaced(tensor)) << preset.name << " " << tensor.name;
  }
}

TEST(Presets, TiedModelsHaveNoHead) {
  const auto last_role = [](const char* name) {
    return read_model(name, {}).tensors.back().role;
  };
  EXPECT_EQ(last_role("qwen3-4b"), Role::kNorm);
  EXPECT_EQ(last_role("qwen3-8b"), Role::kHead);
}

// The bound is ten times the usual time, so that a busy machine passes.
TEST(Presets, AreMadeInMilliseconds) {
  const auto begin = std::chrono::steady_clock::now();
  const Model model = read_model("qwen3-235b-a22b", {});
  const std::chrono::duration<double> elapsed =
      std::chrono::steady_clock::now() - begin;
  EXPECT_GT(model.tensors.size(), 36'472u);
  EXPECT_LT(elapsed.count(), 0.2);
}

TEST(Presets, DescriptionsSayWhatMatters) {
  EXPECT_THAT(presets()[7].description, HasSubstr("128 experts of ffn 1536"));
  EXPECT_THAT(presets()[10].description, HasSubstr("latent attention"));
}

}  // namespace
}  // namespace canzona::shapes::presets_test

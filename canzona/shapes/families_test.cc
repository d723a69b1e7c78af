// Families of models by their config.json: published totals, routing to rules,
// and malicious configurations.
#include "canzona/shapes/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "canzona/base/files.h"
#include "canzona/shapes/architecture.h"
#include "canzona/shapes/read_model.h"
#include "canzona/shapes/tensor.h"
#include "canzona/shapes/test_families.h"

namespace canzona::shapes::families_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::UnorderedElementsAre;

int64_t total(const Model& model) {
  int64_t sum = 0;
  for (const Tensor& tensor : model.tensors) sum += tensor.elements();
  return sum;
}

// The totals that the checkpoints on Hugging Face's hub show to the last digit,
// unless a comment says otherwise.
const std::map<std::string, int64_t>& published() {
  static const std::map<std::string, int64_t> totals = {
      {"llama-3-8b", 8'030'261'248},
      {"mistral-7b", 7'241'732'096},
      {"mixtral-8x7b", 46'702'792'704},
      {"qwen2.5-7b", 7'615'616'512},
      {"qwen3-8b", 8'190'735'360},
      {"qwen3-30b-a3b", 30'532'122'624},
      {"deepseek-v2", 235'741'434'880},
      {"deepseek-v2-lite", 15'706'484'224},
      // The published totals of these two include the offsets that balance
      // experts, which no optimizer updates, and for DeepSeek-V3 a 62nd layer.
      {"deepseek-v3", 671'026'419'200 - 58 * 256},
      {"kimi-k2", 1'026'408'232'448 - 60 * 384},
      {"qwen1.5-moe-a2.7b", 14'315'784'192},
      // 676,550,144 of them are the vision tower's.
      {"qwen2.5-vl-7b", 8'292'166'656},
      {"olmoe-1b-7b", 6'919'161'856},
      {"gemma-7b", 8'537'680'896},
      {"olmo-2-7b", 7'298'617'344},
      {"gemma-2-9b", 9'241'705'984},
      {"gemma-3-1b", 999'885'952},
      {"phi-3-mini", 3'821'079'552},
      {"gpt2", 124'439'808},
      // The model card says 20.91B and 116.83B: checkpoints are quantized.
      {"gpt-oss-20b", 20'914'757'184},
      {"gpt-oss-120b", 116'829'156'672},
      // 80B and 106B are published; checkpoints have one more layer, which
      // predicts the token after next. These were counted by hand from the
      // shapes.
      {"qwen3-next-80b-a3b", 79'674'391'296},
      {"glm-4.5-air", 106'852'245'504},
      // The text section of 4,300,079,472.
      {"gemma-3-4b", 3'880'263'168}};
  return totals;
}

TEST(Families, HaveThePublishedNumberOfParameters) {
  for (const auto& [name, count] : published()) {
    EXPECT_EQ(total(read(config_of(name), false)), count) << name;
    EXPECT_EQ(total(read(config_of(name), true)), count) << name;
  }
}

TEST(Families, AreAllTested) {
  std::set<std::string> seen;
  size_t files = 0;
  for (const auto& file : std::filesystem::directory_iterator(kConfigs)) {
    const std::string name = file.path().stem().string();
    EXPECT_TRUE(published().contains(name)) << name;
    seen.insert(config_of(name).at("model_type").get<std::string>());
    ++files;
  }
  EXPECT_EQ(files, published().size());
  for (const Family& family : families()) {
    EXPECT_TRUE(seen.contains(family.model_type)) << family.model_type;
  }
}

// Every family has a stored input for the fuzzer, and it is understood.
TEST(Families, AreFuzzed) {
  std::set<std::string> seen;
  for (const auto& file : std::filesystem::directory_iterator(
           CANZONA_TEST_DATA "/../../fuzz/corpus/config")) {
    const std::string text =
        read_file(file.path().string(), 1 << 20, "stored input");
    EXPECT_GT(model_from_config(text, "config.json", {}).tensors.size(), 2u)
        << file.path();
    seen.insert(json::parse(text).at("model_type").get<std::string>());
  }
  for (const Family& family : families()) {
    EXPECT_TRUE(seen.contains(family.model_type)) << family.model_type;
  }
}

TEST(Families, AreDocumented) {
  const std::string text = read_file(CANZONA_TEST_DATA "/../../docs/models.md",
                                     1 << 20, "documentation");
  for (const Family& family : families()) {
    EXPECT_THAT(text, HasSubstr(cat("`", family.model_type, "`")));
  }
  for (const PresetInfo& preset : presets()) {
    EXPECT_THAT(text, HasSubstr(cat("`", preset.name, "`")));
  }
}

TEST(Families, GiveTheTensorsOfTheirPresets) {
  for (const auto& [name, count] : published()) {
    if (find_preset(name) == nullptr) continue;
    for (const bool fused : {false, true}) {
      EXPECT_EQ(read(config_of(name), fused).tensors,
                read_model(name, {.fused = fused}).tensors)
          << name;
    }
  }
}

// The tower has the names of its checkpoint, and the patches are convolved.
TEST(Families, HaveTheVisionTowerBesideTheTextModel) {
  const Model model = read(config_of("qwen2.5-vl-7b"));
  int64_t sum = 0;
  std::map<std::string, Tensor> tower;
  for (const Tensor& tensor : model.tensors) {
    if (!tensor.name.starts_with("visual.")) continue;
    EXPECT_EQ(tensor.layer, -1) << tensor.name;
    sum += tensor.elements();
    tower[tensor.name] = tensor;
  }
  EXPECT_EQ(sum, 676'550'144);
  EXPECT_FALSE(tower.at("visual.patch_embed.proj.weight").matrix_rule);
  EXPECT_EQ(tower.at("visual.patch_embed.proj.weight").cols(), 3 * 2 * 14 * 14);
  EXPECT_EQ(tower.at("visual.blocks.31.attn.qkv.weight").rows(), 3 * 1280);
  const Tensor& fused = tower.at("visual.blocks.0.attn.qkv.weight");
  ASSERT_EQ(fused.sections.size(), 3);
  EXPECT_EQ(fused.sections[2].name, "v");
  EXPECT_EQ(fused.sections[2].heads, 16);
  EXPECT_TRUE(tower.at("visual.blocks.0.mlp.down_proj.weight").matrix_rule);
  EXPECT_EQ(tower.at("visual.merger.mlp.2.weight").rows(), 3584);
  json without = config_of("qwen2.5-vl-7b");
  without["vision_config"]["num_heads"] = 7;
  EXPECT_THAT(message(without), HasSubstr("num_heads=7 does not divide"));
  without.erase("vision_config");
  EXPECT_THAT(message(without), HasSubstr("vision_config"));
}

TEST(Families, SayHowManyExpertsATokenVisits) {
  const auto visits = [](const json& config) {
    return read(config).experts_per_token;
  };
  EXPECT_EQ(visits(config_of("mixtral-8x7b")), 2);
  EXPECT_EQ(visits(config_of("gpt-oss-20b")), 4);
  EXPECT_EQ(visits(config_of("qwen3-next-80b-a3b")), 10);
  EXPECT_EQ(visits(config_of("qwen3-8b")), 0);
  EXPECT_EQ(visits(config_of("deepseek-v3")), 0);
  for (const char* name :
       {"mixtral-8x7b", "gpt-oss-120b", "qwen3-next-80b-a3b", "qwen3-30b-a3b"})
    EXPECT_EQ(visits(config_of(name)), read_model(name, {}).experts_per_token)
        << name;
  const json mixtral = config_of("mixtral-8x7b");
  EXPECT_EQ(visits(with(mixtral, {{"experts_per_token", 2}})), 2);
  EXPECT_EQ(visits(with(mixtral, {{"num_experts_per_tok", 9}})), 8);
  EXPECT_THAT(message(with(mixtral, {{"experts_per_token", 4}})),
              AllOf(HasSubstr("num_experts_per_tok is 2"),
                    HasSubstr("experts_per_token is 4")));
  EXPECT_THAT(message(with(mixtral, {{"num_experts_per_tok", 0}})),
              HasSubstr("num_experts_per_tok must not be 0"));
}

// The last word of a name before ".weight".
std::string leaf_of(std::string name) {
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  return name.substr(name.rfind('.') + 1);
}

// All matrices except these are routed to the matrix rule.
TEST(Families, WhatIsNoMatrixInALayerGoesToAdamw) {
  std::set<std::string> adamw;
  for (const auto& [name, count] : published()) {
    for (const Tensor& t : read(config_of(name)).tensors) {
      EXPECT_EQ(t.matrix_rule, t.role == Role::kMatrix && !t.flattened)
          << t.name;
      EXPECT_TRUE(!t.matrix_rule || t.shape.size() == 2) << t.name;
      if (!t.matrix_rule && t.shape.size() > 1) adamw.insert(leaf_of(t.name));
    }
  }
  EXPECT_THAT(adamw, UnorderedElementsAre(
                         "embed_tokens", "lm_head", "wte", "wpe", "gate",
                         "router", "shared_expert_gate", "conv1d", "proj"));
}

// Every row of a tensor belongs to one section.
TEST(Families, PartsTileTheRows) {
  for (const auto& [name, count] : published()) {
    for (const bool fused : {false, true}) {
      Model model =
          read_model(config_path(name), {.fused = fused, .layers = 4});
      for (const Tensor& t : model.tensors) {
        if (t.sections.empty()) continue;
        std::vector<bool> seen(static_cast<size_t>(t.rows()), false);
        int64_t rows = 0;
        for (const Section& section : t.sections) {
          const int64_t side =
              is_output(t.sections) ? t.cols() : section.rows.rows();
          EXPECT_EQ(side % section.heads, 0) << t.name;
          for (int64_t i = 0; i < section.rows.rows(); ++i, ++rows) {
            ASSERT_LT(section.rows.row(i), t.rows()) << t.name;
            seen[static_cast<size_t>(section.rows.row(i))] = true;
          }
        }
        EXPECT_EQ(rows, t.rows()) << t.name;
        EXPECT_EQ(std::count(seen.begin(), seen.end(), false), 0) << t.name;
      }
    }
  }
}

TEST(Families, AnUnknownOneIsToldAllThatAreKnown) {
  const std::string text = message(tiny("mamba2"));
  EXPECT_THAT(
      text, AllOf(HasSubstr("unknown model_type 'mamba2'"),
                  HasSubstr("model.safetensors"), HasSubstr("names and shapes"),
                  Not(HasSubstr("did you mean"))));
  for (const Family& family : families()) {
    EXPECT_THAT(text, HasSubstr(family.model_type));
  }
}

// Returns the object of a configuration that has the numbers.
json& text_of(json& config) {
  return config.contains("text_config") ? config["text_config"] : config;
}

TEST(Families, NameTheirMissingKeys) {
  for (const auto& [name, count] : published()) {
    const json config = config_of(name);
    const Family* family =
        find_family(config.at("model_type").get<std::string>());
    ASSERT_NE(family, nullptr) << name;
    for (const std::string& key : family->required) {
      json less = config;
      for (const std::string& word : split_text(key, '|')) {
        text_of(less).erase(word.substr(0, word.find('?')));
      }
      EXPECT_THAT(message(less), HasSubstr(key)) << name;
    }
  }
}

// Odd values are refused or give a model within bounds; nothing hangs, grows or
// overflows.
TEST(Families, SurviveOddValues) {
  for (const auto& [name, count] : published()) {
    json config = config_of(name);
    text_of(config)[name == "gpt2" ? "n_layer" : "num_hidden_layers"] = 4;
    json copy = config;
    for (const auto& [key, value] : text_of(copy).items()) {
      if (value.is_string() || value.is_object()) continue;
      for (const json& odd :
           {json(-1), json(0), json(1), json(1.5), json("8"), json(nullptr),
            json(json::array()), json(json::object()), json(true),
            json(kMaxDim), json(kMaxDim + 1), json(INT64_MAX),
            json(uint64_t{1} << 63), json(1e30)}) {
        json changed = config;
        text_of(changed)[key] = odd;
        try {
          for (const Tensor& t : read(changed).tensors) {
            ASSERT_GT(t.elements(), 0) << name << " " << key << " " << odd;
            ASSERT_LE(std::max(t.rows(), t.cols()), kMaxDim);
          }
        } catch (const UsageError& error) {
          EXPECT_STRNE(error.what(), "");
        }
      }
    }
  }
}

TEST(Families, RefuseToExplode) {
  const auto refused = [](const char* name, const json& changes) {
    return message(with(config_of(name), changes));
  };
  EXPECT_THAT(refused("qwen3-next-80b-a3b", {{"num_hidden_layers", kMaxDim}}),
              HasSubstr("number of layers"));
  EXPECT_THAT(refused("gpt-oss-20b", {{"num_local_experts", 100'000}}),
              HasSubstr("2000000 tensors"));
  EXPECT_THAT(refused("mixtral-8x7b", {{"num_local_experts", 1 << 30}}),
              HasSubstr("number of experts"));
  EXPECT_THAT(
      refused("qwen3-next-80b-a3b", {{"linear_num_key_heads", kMaxDim}}),
      HasSubstr("linear key heads"));
  EXPECT_THAT(
      refused("qwen3-next-80b-a3b", {{"linear_conv_kernel_dim", kMaxDim}}),
      HasSubstr("kernel"));
  EXPECT_THAT(refused("gpt2", {{"n_positions", 0}}), HasSubstr("positions"));
  EXPECT_THAT(refused("gpt2", {{"n_embd", kMaxDim}, {"n_head", 1 << 20}}),
              HasSubstr("ffn"));
  EXPECT_THAT(refused("deepseek-v2", {{"mlp_bias", true}}),
              HasSubstr("mlp_bias"));
}

}  // namespace
}  // namespace canzona::shapes::families_test

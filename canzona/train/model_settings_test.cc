#include "canzona/train/model_settings.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/train/config.h"

namespace canzona::model_settings_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// As Hugging Face writes it, with what the decoder does not care about.
constexpr const char* kDense = R"({
  "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3",
  "attention_bias": false, "attention_dropout": 0.0, "bos_token_id": 151643,
  "head_dim": 32, "hidden_act": "silu", "hidden_size": 96,
  "initializer_range": 0.02, "intermediate_size": 160,
  "max_position_embeddings": 40960, "max_window_layers": 28,
  "num_attention_heads": 6, "num_hidden_layers": 3, "num_key_value_heads": 2,
  "rms_norm_eps": 1e-05, "rope_scaling": null, "rope_theta": 1000000,
  "sliding_window": null, "tie_word_embeddings": true,
  "torch_dtype": "bfloat16", "use_cache": true, "use_sliding_window": false,
  "vocab_size": 512})";

std::string with_member(std::string text, const std::string& member) {
  return text.insert(1, member + ", ");
}

TrainConfig config_of(const std::string& text) {
  return make_config(config_json_settings(text, "qwen/config.json"));
}

TEST(ModelSettings, TakesTheArchitectureOfAConfigJson) {
  const TrainConfig config = config_of(kDense);
  EXPECT_EQ(config.model.name, "qwen");
  EXPECT_EQ(config.model.layers, 3);
  EXPECT_EQ(config.model.hidden, 96);
  EXPECT_EQ(config.model.ffn, 160);
  EXPECT_EQ(config.model.heads, 6);
  EXPECT_EQ(config.model.kv_heads, 2);
  EXPECT_EQ(config.model.head_dim, 32);
  EXPECT_EQ(config.model.vocab, 512);
  EXPECT_TRUE(config.model.tied);
  EXPECT_EQ(config.model.rope_base, 1e6);
  EXPECT_EQ(config.model.norm_epsilon, 1e-5);
  EXPECT_EQ(config.model.experts, 0);
  EXPECT_EQ(config.origin("model.hidden"), "qwen/config.json");
  // The rest is the preset's.
  EXPECT_EQ(config.model.length, 64);
  EXPECT_EQ(config.origin("steps"), "preset tiny");
}

TEST(ModelSettings, TakesExpertsAndNewerRopes) {
  const TrainConfig config = config_of(
      R"({"model_type": "qwen3_moe", "hidden_size": 64, "head_dim": 16,
          "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 256,
          "num_attention_heads": 4, "num_experts": 6, "num_experts_per_tok": 3,
          "moe_intermediate_size": 48, "norm_topk_prob": true,
          "rope_parameters": {"rope_theta": 5000, "rope_type": "default"}})");
  EXPECT_EQ(config.model.experts, 6);
  EXPECT_EQ(config.model.experts_per_token, 3);
  EXPECT_EQ(config.model.expert_ffn, 48);
  EXPECT_EQ(config.model.kv_heads, 4);
  EXPECT_EQ(config.model.rope_base, 5000);
}

TEST(ModelSettings, NamesTheFirstKeyThatTheDecoderLacks) {
  const auto refused = [](const std::string& text, const char* key,
                          const char* value) {
    EXPECT_THAT([&] { config_of(text); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("qwen/config.json"), HasSubstr(key),
                          HasSubstr(value))));
  };
  // A repeated member is refused as such, so that keys are replaced.
  const auto replaced = [](const std::string& from, const std::string& to) {
    std::string text = kDense;
    return text.replace(text.find(from), from.size(), to);
  };
  refused(replaced(R"("model_type": "qwen3")", R"("model_type": "llama")"),
          "model_type", "'llama'");
  refused(replaced(R"("attention_bias": false)", R"("attention_bias": true)"),
          "attention_bias", "true");
  refused(replaced(R"("hidden_act": "silu")", R"("hidden_act": "gelu")"),
          "hidden_act", "gelu");
  refused(replaced(R"("rope_scaling": null)",
                   R"("rope_scaling": {"type": "yarn", "factor": 4})"),
          "rope_scaling", "yarn");
  refused(replaced(R"("use_sliding_window": false)",
                   R"("use_sliding_window": true)"),
          "use_sliding_window", "true");
  refused(replaced(R"("rms_norm_eps": 1e-05)", R"("rms_norm_eps": "small")"),
          "rms_norm_eps", "small");
  refused(replaced(R"("hidden_size": 96,)", ""), "hidden_size", "missing");
  refused(with_member(kDense, R"("rope_parameters": {"rope_type": "llama3"})"),
          "rope_type", "llama3");
  refused("[]", "expected an object", "config.json");
}

TEST(ModelSettings, KnowsThePlannersPresets) {
  const TrainConfig config = make_config(model_settings("qwen3-0.6b"));
  EXPECT_EQ(config.model.hidden, 1024);
  EXPECT_EQ(config.model.layers, 28);
  EXPECT_EQ(config.model.rope_base, 1e6);
  EXPECT_EQ(model_name(config), "qwen3-0.6b");
  EXPECT_THAT([] { model_settings("qwen3-0.7b"); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("'qwen3-0.7b'"),
                                              HasSubstr("'qwen3-0.6b'"))));
  EXPECT_THAT([] { model_settings("llama-3-8b"); },
              ThrowsMessage<UsageError>(HasSubstr("norms of queries")));
}

}  // namespace
}  // namespace canzona::model_settings_test

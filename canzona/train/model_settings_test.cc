#include "canzona/train/model_settings.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/shapes/architecture.h"
#include "canzona/shapes/read_model.h"
#include "canzona/train/config.h"
#include "canzona/train/model_source.h"

namespace canzona::train::model_settings_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using testing::ThrowsMessage;

// As Hugging Face writes it, including keys that the decoder ignores.
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

constexpr const char* kExperts = R"({
  "model_type": "qwen3_moe", "hidden_size": 64, "head_dim": 16,
  "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 256,
  "num_attention_heads": 4, "num_experts": 6, "num_experts_per_tok": 3,
  "moe_intermediate_size": 48, "norm_topk_prob": true,
  "rope_parameters": {"rope_theta": 5000, "rope_type": "default"}})";

std::string with_member(std::string text, const std::string& member) {
  return text.insert(1, member + ", ");
}

std::string with_text(std::string text, const std::string& from,
                      const std::string& to) {
  return text.replace(text.find(from), from.size(), to);
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
  // The rest comes from the preset.
  EXPECT_EQ(config.model.length, 64);
  EXPECT_EQ(config.origin("steps"), "preset tiny");
}

TEST(ModelSettings, TakesExpertsAndNewerRopes) {
  const TrainConfig config = config_of(kExperts);
  EXPECT_EQ(config.model.experts, 6);
  EXPECT_EQ(config.model.experts_per_token, 3);
  EXPECT_EQ(config.model.expert_ffn, 48);
  EXPECT_EQ(config.model.kv_heads, 4);
  EXPECT_EQ(config.model.rope_base, 5000);
}

// Settings that change no tensor are kept, too, and the run may override them.
TEST(ModelSettings, TakesTheContextAndTheBalancingLoss) {
  TrainConfig config = config_of(kDense);
  EXPECT_EQ(config.model.context, 40960);
  EXPECT_EQ(context_length_of(config), 40960);
  config.model.length = 65536;
  EXPECT_EQ(context_length_of(config), 65536);
  const Settings settings = architecture_settings(config, "a checkpoint");
  EXPECT_EQ(make_config(settings).model.context, 65536);
  const std::string text =
      with_member(kExperts, "\"router_aux_loss_coef\": 0.25");
  const Settings experts = config_json_settings(text, "moe/config.json");
  config = make_config(experts);
  EXPECT_EQ(config.model.balance_coefficient, 0.25);
  EXPECT_EQ(config.model.context, 0);
  EXPECT_EQ(make_config(architecture_settings(config, "a checkpoint"))
                .model.balance_coefficient,
            0.25);
  Settings other = experts;
  other.push_back(parse_setting("model.balance_coefficient=0.5", "--set"));
  other.push_back(parse_setting("model.context=77", "--set"));
  EXPECT_NO_THROW(refuse_contradictions(make_config(other), experts));
  // A dense model does not get our default of 0.01 either.
  EXPECT_EQ(config_of(kExperts).model.balance_coefficient, 0.01);
}

TEST(ModelSettings, RefusesAContextOrACoefficientThatIsNone) {
  const auto refused = [](const std::string& text, const char* key) {
    EXPECT_THAT([&] { config_of(text); },
                ThrowsMessage<UsageError>(HasSubstr(key)))
        << text;
  };
  for (const char* value : {"0", "-1", "1.5", "\"long\"", "1e99", "[1]"})
    refused(with_text(kDense, "40960", value), "max_position_embeddings");
  for (const char* value : {"\"much\"", "true", "[]"})
    refused(with_member(kExperts, cat("\"router_aux_loss_coef\": ", value)),
            "router_aux_loss_coef");
  refused(with_member(kExperts, "\"router_aux_loss_coef\": -1"),
          "model.balance_coefficient");
  EXPECT_EQ(config_of(with_text(kDense, "40960", "null")).model.context, 0);
}

TEST(ModelSettings, NamesTheFirstKeyThatTheDecoderLacks) {
  const auto refused = [](const std::string& text, const char* key,
                          const char* value) {
    EXPECT_THAT(
        [&] { config_of(text); },
        ThrowsMessage<UsageError>(AllOf(HasSubstr("qwen/config.json"),
                                        HasSubstr(key), HasSubstr(value))));
  };
  // A duplicate member is refused as such, so keys are replaced.
  const auto replaced = [](const std::string& from, const std::string& to) {
    return with_text(kDense, from, to);
  };
  refused(replaced(R"("model_type": "qwen3")", R"("model_type": "mistral")"),
          "model_type", "'mistral'");
  refused(replaced(R"("attention_bias": false)", R"("attention_bias": true)"),
          "attention_bias", "true");
  refused(replaced(R"("hidden_act": "silu")", R"("hidden_act": "gelu")"),
          "hidden_act", "gelu");
  refused(replaced(R"("rope_scaling": null)",
                   R"("rope_scaling": {"type": "yarn", "factor": 4})"),
          "rope_scaling", "yarn");
  refused(replaced(R"("rope_scaling": null)",
                   R"("rope_scaling": {"rope_type": "llama3"})"),
          "rope_scaling", "llama3");
  refused(
      with_member(kDense,
                  R"("layer_types": ["full_attention", "sliding_attention"])"),
      "layer_types", "sliding_attention");
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

TEST(ModelSettings, RefusesWhatItsExpertsLack) {
  const auto refused = [](const std::string& from, const std::string& to,
                          const char* key, const char* value) {
    EXPECT_THAT(
        [&] { config_of(with_text(kExperts, from, to)); },
        ThrowsMessage<UsageError>(AllOf(HasSubstr("qwen/config.json"),
                                        HasSubstr(key), HasSubstr(value))))
        << to;
  };
  const std::string weights = R"("norm_topk_prob": true)";
  refused(weights + ",", "", "norm_topk_prob", "missing");
  refused(weights, R"("norm_topk_prob": null)", "norm_topk_prob", "null");
  refused(weights, R"("norm_topk_prob": false)", "norm_topk_prob", "false");
  for (const char* odd : {"2.7", "1e300", "0", "-1"})
    refused(R"(_per_tok": 3)", cat(R"(_per_tok": )", odd),
            "num_experts_per_tok", "");
  refused(R"(_per_tok": 3)", R"(_per_tok": 7)", "model.experts_per_token 7",
          "at most");
  refused(R"("rope_theta")", R"("partial_rotary_factor": 0.5, "rope_theta")",
          "rope_parameters.partial_rotary_factor", "0.5");
  const std::string whole =
      with_text(kExperts, R"("rope_theta")",
                R"("partial_rotary_factor": 1.0, "rope_theta")");
  EXPECT_EQ(config_of(whole).model.rope_base, 5000);
}

TEST(ModelSettings, SaysWhetherPlansReadTheModel) {
  const auto of_type = [](const std::string& type) {
    return with_text(kDense, R"("model_type": "qwen3")",
                     cat(R"("model_type": ")", type, "\""));
  };
  EXPECT_THAT([&] { config_of(of_type("mistral")); },
              ThrowsMessage<UsageError>(HasSubstr("canzona plan")));
  EXPECT_THAT([&] { config_of(of_type("mamba2")); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("'mamba2'"),
                                              Not(HasSubstr("canzona plan")))));
}

int64_t count_parameters(const Model& model) {
  int64_t sum = 0;
  for (const Tensor& tensor : model.tensors) sum += tensor.elements();
  return sum;
}

// Whatever is trained under a preset's name must be that model.
TEST(ModelSettings, TrainsOrRefusesEveryPreset) {
  int accepted = 0;
  for (const PresetInfo& preset : presets()) {
    try {
      const TrainConfig config = make_config(model_settings(preset.name));
      const Model model = decoder_shapes(decoder_of(config), preset.name);
      EXPECT_EQ(count_parameters(model),
                count_parameters(read_model(preset.name, {})))
          << preset.name;
      ++accepted;
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(),
                  AllOf(StartsWith(preset.name + ": "),
                        HasSubstr(" cannot be trained: expected ")));
    }
  }
  EXPECT_EQ(accepted, 10);
  EXPECT_THAT([] { model_settings("qwen3-next-80b-a3b"); },
              ThrowsMessage<UsageError>(HasSubstr("layer_types")));
  EXPECT_THAT([] { model_settings("gpt2"); },
              ThrowsMessage<UsageError>(HasSubstr("model_type")));
  EXPECT_THAT([] { model_settings("gpt-oss-20b"); },
              ThrowsMessage<UsageError>(HasSubstr("sinks")));
}

TEST(ModelSettings, KnowsThePlannersPresets) {
  const TrainConfig config = make_config(model_settings("qwen3-0.6b"));
  EXPECT_EQ(config.model.hidden, 1024);
  EXPECT_EQ(config.model.layers, 28);
  EXPECT_EQ(config.model.rope_base, 1e6);
  EXPECT_EQ(model_name(config), "qwen3-0.6b");
  EXPECT_THAT([] { model_settings("qwen3-0.7b"); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("'qwen3-0.7b'"), HasSubstr("'qwen3-0.6b'"))));
  const TrainConfig llama = make_config(model_settings("llama-3-8b"));
  EXPECT_FALSE(llama.model.qk_norm);
  EXPECT_EQ(llama.model.rope_base, 5e5);
  EXPECT_EQ(llama.model.norm_epsilon, 1e-5);
}

// As Hugging Face's Llama 3, but smaller.
TEST(ModelSettings, TakesLlamasWithoutNormsOfQueriesAndKeys) {
  constexpr const char* kLlama = R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false,
    "attention_dropout": 0.0, "bos_token_id": 128000, "hidden_act": "silu",
    "hidden_size": 64, "intermediate_size": 96, "mlp_bias": false,
    "model_type": "llama", "num_attention_heads": 4, "num_hidden_layers": 2,
    "num_key_value_heads": 2, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
    "rope_scaling": null, "rope_theta": 500000.0,
    "tie_word_embeddings": false, "vocab_size": 320})";
  const TrainConfig config = config_of(kLlama);
  EXPECT_FALSE(config.model.qk_norm);
  EXPECT_EQ(config.model.head_dim, 16);
  EXPECT_EQ(config.model.kv_heads, 2);
  EXPECT_EQ(config.model.rope_base, 5e5);
  EXPECT_EQ(config.model.norm_epsilon, 1e-5);
  EXPECT_EQ(config.origin("model.qk_norm"), "qwen/config.json");
  EXPECT_TRUE(config_of(kDense).model.qk_norm);
  const DecoderConfig decoder = decoder_of(config);
  EXPECT_FALSE(decoder.architecture.qk_norm);
  for (const Tensor& tensor : decoder_shapes(decoder, "llama").tensors)
    EXPECT_THAT(tensor.name, Not(HasSubstr("q_norm")));
  const auto refused = [&](const char* from, const char* to, const char* key) {
    EXPECT_THAT([&] { config_of(with_text(kLlama, from, to)); },
                ThrowsMessage<UsageError>(HasSubstr(key)));
  };
  refused(R"("attention_bias": false)", R"("attention_bias": true)",
          "attention_bias true cannot be trained");
  refused(R"("mlp_bias": false)", R"("mlp_bias": true)", "mlp_bias true");
}

// Newer files name what older ones leave out.
TEST(ModelSettings, TakesScalingsAndLayersThatChangeNothing) {
  const std::string plain =
      with_text(kDense, R"("rope_scaling": null)",
                R"("rope_scaling": {"rope_type": "default"})");
  const TrainConfig config = config_of(with_member(
      plain, R"("layer_types": ["full_attention", "full_attention"])"));
  EXPECT_EQ(config.model.rope_base, 1e6);
}

}  // namespace
}  // namespace canzona::train::model_settings_test

#include "canzona/train/model_settings.h"

#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/shapes/config.h"
#include "canzona/shapes/config_members.h"
#include "canzona/shapes/presets.h"
#include "canzona/shapes/read_model.h"

namespace canzona {
namespace {

constexpr int64_t kMaxConfigFile = 4 << 20;
// Of all Qwen3 models; presets of the planner hold shapes alone.
constexpr double kQwen3RopeBase = 1e6;
constexpr int64_t kQwen3ExpertsPerToken = 8;

// What the shapes of a model do not say.
struct BesideShapes {
  std::string name;
  double rope_base = kQwen3RopeBase;
  double norm_epsilon = 1e-6;
  int64_t experts_per_token = kQwen3ExpertsPerToken;
};

[[noreturn]] void refuse_key(const std::string& source, const std::string& key,
                             const std::string& found,
                             const std::string& expected) {
  throw UsageError(cat(source, ": ", key, " ", found,
                       " cannot be trained: expected ", expected,
                       "; canzona plan and compare read such models"));
}

void check_shapes(const Architecture& a, const std::string& source) {
  const auto& e = a.experts;
  if (a.latent.kv_rank > 0)
    refuse_key(source, "kv_lora_rank", cat(a.latent.kv_rank),
               "attention with grouped queries");
  if (!a.qk_norm)
    refuse_key(source, "attention", "without norms of queries and keys",
               "qwen3 or qwen3_moe");
  if (a.attention_bias) refuse_key(source, "attention_bias", "true", "false");
  if (a.mlp_bias) refuse_key(source, "mlp_bias", "true", "false");
  if (e.count > 0 && e.every != 1)
    refuse_key(source, "decoder_sparse_step", cat(e.every),
               "1: experts in every layer");
  if (e.count > 0 && (!e.dense_layers.empty() || e.first_layer > 0))
    refuse_key(source, "mlp_only_layers", "with layers in it",
               "[]: experts in every layer");
}

// A key whose other values ask for what the decoder does not do. Absent and
// null are as expected.
struct FixedKey {
  const char* key;
  Json value;
};

void check_fixed_keys(const Json& config, const std::string& file) {
  const std::vector<FixedKey> fixed = {{"hidden_act", "silu"},
                                       {"attention_bias", false},
                                       {"mlp_bias", false},
                                       {"use_sliding_window", false},
                                       {"partial_rotary_factor", 1},
                                       {"attention_dropout", 0},
                                       {"norm_topk_prob", true},
                                       {"rope_scaling", nullptr},
                                       {"quantization_config", nullptr}};
  for (const FixedKey& one : fixed) {
    const auto found = config.find(one.key);
    if (found == config.end() || found->is_null() || *found == one.value)
      continue;
    refuse_key(file, one.key, printable(found->dump(), 60),
               one.value.is_null() ? "none" : one.value.dump());
  }
}

double config_number(const Json& config, const char* key, double absent,
                 const std::string& file) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return absent;
  if (found->is_number()) return found->get<double>();
  throw UsageError(cat(file, ": ", key, ": expected a number, found ",
                       printable(found->dump(), 60)));
}

// Newer files keep the angles in an object of their own.
double rope_base_of(const Json& config, const std::string& file) {
  constexpr double kUsual = 10000;
  const auto rope = config.find("rope_parameters");
  if (rope == config.end() || !rope->is_object())
    return config_number(config, "rope_theta", kUsual, file);
  const auto type = rope->find("rope_type");
  if (type != rope->end() && *type != "default")
    refuse_key(file, "rope_parameters.rope_type", printable(type->dump(), 60),
               "\"default\"");
  return config_number(*rope, "rope_theta", kUsual, file);
}

void check_type(const Json& config, const std::string& file) {
  const std::string type = ConfigMembers(config, file).model_type();
  if (type.empty() || type == "qwen3" || type == "qwen3_moe") return;
  refuse_key(file, "model_type", quoted(type), "qwen3 or qwen3_moe");
}

Settings as_settings(const Architecture& a, const BesideShapes& beside,
                     const std::string& origin) {
  Settings out;
  const auto add = [&](const char* key, SettingValue value) {
    out.push_back({key, std::move(value), origin});
  };
  add("model.name", beside.name);
  add("model.layers", a.layers);
  add("model.hidden", a.hidden);
  add("model.ffn", a.ffn);
  add("model.heads", a.heads);
  add("model.kv_heads", a.kv_heads);
  add("model.head_dim", a.head_dim);
  add("model.vocab", a.vocab);
  add("model.tied", a.tied);
  add("model.rope_base", beside.rope_base);
  add("model.norm_epsilon", beside.norm_epsilon);
  add("model.experts", a.experts.count);
  add("model.shared_experts", a.experts.shared);
  if (a.experts.count == 0) return out;
  add("model.experts_per_token", beside.experts_per_token);
  add("model.expert_ffn", a.experts.ffn);
  return out;
}

[[noreturn]] void refuse_model(const std::string& source) {
  std::vector<std::string> known;
  for (const PresetInfo& preset : presets()) known.push_back(preset.name);
  throw UsageError(cat("--model ", quoted(source),
                       " is neither a known model nor a file",
                       did_you_mean(source, known), "; known are ",
                       join(known, ", "),
                       ", and any config.json of Qwen3 or Qwen3-MoE"));
}

// The config.json of a folder, or the file itself.
std::filesystem::path config_path(const std::string& source) {
  std::error_code ignored;
  std::filesystem::path path = source;
  if (std::filesystem::is_directory(path, ignored)) path /= "config.json";
  if (source.empty() || !std::filesystem::exists(path, ignored))
    refuse_model(path.string());
  return path;
}

}  // namespace

Settings config_json_settings(std::string_view text, const std::string& file) {
  const Json root = parse_json(
      text, {.what = file, .max_bytes = kMaxConfigFile, .max_values = 100'000});
  if (!root.is_object())
    throw UsageError(cat(file, ": expected an object, as an HF config.json"));
  check_type(root, file);
  const Json& config = text_part(root);
  check_fixed_keys(config, file);
  const Architecture shapes = read_config(text, file);
  check_shapes(shapes, file);
  const auto experts = static_cast<double>(kQwen3ExpertsPerToken);
  return as_settings(
      shapes,
      {.name = name_of_model_file(file),
       .rope_base = rope_base_of(config, file),
       .norm_epsilon = config_number(config, "rms_norm_eps", 1e-6, file),
       .experts_per_token = static_cast<int64_t>(
           config_number(config, "num_experts_per_tok", experts, file))},
      file);
}

Settings model_settings(const std::string& source) {
  if (const Architecture* preset = find_preset(source)) {
    check_shapes(*preset, source);
    return as_settings(*preset, {.name = source}, "--model " + source);
  }
  const std::string path = config_path(source).string();
  return config_json_settings(
      read_file(path, kMaxConfigFile, "the model's configuration"), path);
}

}  // namespace canzona

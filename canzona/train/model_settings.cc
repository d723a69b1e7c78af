#include "canzona/train/model_settings.h"

#include <filesystem>
#include <optional>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/shapes/architecture.h"
#include "canzona/shapes/config.h"
#include "canzona/shapes/read_model.h"
#include "canzona/train/config_keys.h"

namespace canzona::train {
namespace {

constexpr int64_t kMaxConfigFile = 4 << 20;
// All Qwen3 models have this value, and all Llama 3 models the next; the
// planner's presets have only shapes.
constexpr double kQwen3RopeBase = 1e6;
constexpr double kLlama3RopeBase = 5e5;
constexpr double kLlama3Epsilon = 1e-5;
// The default of transformers.
constexpr int64_t kQwen3ExpertsPerToken = 8;
constexpr const char* kTrainedTypes = "qwen3, qwen3_moe or llama";

// Facts that the shapes of a model do not show.
struct BesideShapes {
  std::string name;
  double rope_base = kQwen3RopeBase;
  double norm_epsilon = 1e-6;
  int64_t context = 0;                             // 0: not known
  std::optional<double> balance_coefficient = {};  // none: not known
};

// `planned` says that `canzona plan` can read such a model.
[[noreturn]] void refuse_key(const std::string& source, const std::string& key,
                             const std::string& found,
                             const std::string& expected, bool planned = true) {
  throw UsageError(cat(
      source, ": ", key, " ", found, " cannot be trained: expected ", expected,
      planned ? "; canzona plan and compare read such models" : ""));
}

void check_attention_shapes(const Architecture& a, const std::string& source) {
  if (a.latent.kv_rank > 0)
    refuse_key(source, "kv_lora_rank", cat(a.latent.kv_rank),
               "attention with grouped queries");
  if (!a.linear.layers.empty())
    refuse_key(
        source, "layer_types",
        cat("with linear_attention in ", a.linear.layers.size(), " layers"),
        "full_attention in every layer");
  if (a.output_gate) refuse_key(source, "attn_output_gate", "true", "false");
  if (a.sinks)
    refuse_key(source, "self_attn.sinks", "in every layer",
               "attention without sinks");
  if (a.wide_qk_norm)
    refuse_key(source, "self_attn.q_norm", "over all heads",
               "a norm of each head");
  if (a.attention_bias) refuse_key(source, "attention_bias", "true", "false");
}

void check_expert_shapes(const ExpertNumbers& e, const std::string& source) {
  if (e.count == 0) return;
  if (e.layout == ExpertLayout::kSparseBlock)
    refuse_key(source, "block_sparse_moe", "in every layer",
               "experts under mlp.experts");
  if (e.layout == ExpertLayout::kStacked)
    refuse_key(source, "mlp.experts.gate_up_proj", "of all experts at once",
               "experts with weights of their own");
  if (e.gated_shared_ffn > 0)
    refuse_key(source, "shared_expert_intermediate_size",
               cat(e.gated_shared_ffn), "no shared expert with a gate");
  if (e.every != 1)
    refuse_key(source, "decoder_sparse_step", cat(e.every),
               "1: experts in every layer");
  if (!e.dense_layers.empty())
    refuse_key(source, "mlp_only_layers", "with layers in it",
               "[]: experts in every layer");
  if (e.first_layer > 0)
    refuse_key(source, "first_k_dense_replace", cat(e.first_layer),
               "0: experts in every layer");
}

// Refuses features of an Architecture that the decoder does not have.
void check_shapes(const Architecture& a, const std::string& source) {
  if (a.body == Body::kGpt2)
    refuse_key(source, "model_type", "'gpt2'", kTrainedTypes);
  check_attention_shapes(a, source);
  check_expert_shapes(a.experts, source);
  if (a.mlp_bias) refuse_key(source, "mlp_bias", "true", "false");
  if (a.packed)
    refuse_key(source, "self_attn.qkv_proj", "in one tensor",
               "q_proj, k_proj and v_proj");
  if (a.norms != NormPlaces::kBefore)
    refuse_key(source, "post_feedforward_layernorm", "in every layer",
               "norms before attention and mlp alone");
}

// A key whose other values ask for something the decoder does not do. Absent
// and null count as expected.
struct FixedKey {
  const char* key;
  Json value;
};

void check_fixed_keys(const Json& config, const std::string& file) {
  const std::vector<FixedKey> fixed = {
      {"hidden_act", "silu"},       {"attention_bias", false},
      {"mlp_bias", false},          {"use_sliding_window", false},
      {"partial_rotary_factor", 1}, {"attention_dropout", 0},
      {"is_causal", true},          {"quantization_config", nullptr}};
  for (const FixedKey& one : fixed) {
    const auto found = config.find(one.key);
    if (found == config.end() || found->is_null() || *found == one.value)
      continue;
    refuse_key(file, one.key, printable(found->dump(), 60),
               one.value.is_null() ? "none" : one.value.dump());
  }
}

// Older files call the kind of scaling "type".
void check_rope_scaling(const Json& config, const std::string& file) {
  const auto found = config.find("rope_scaling");
  if (found == config.end() || found->is_null()) return;
  // All its members must have neutral values.
  bool is_default = found->is_object() && !found->empty();
  for (const auto& [key, value] : found->items())
    is_default = is_default && (key == "rope_type" || key == "type") &&
                 value == "default";
  if (!is_default)
    refuse_key(file, "rope_scaling", printable(found->dump(), 60), "none");
}

// Newer files state the attention of every layer.
void check_layer_types(const Json& config, const std::string& file) {
  const auto found = config.find("layer_types");
  if (found == config.end() || found->is_null()) return;
  if (!found->is_array())
    refuse_key(file, "layer_types", printable(found->dump(), 60), "a list");
  for (const Json& type : *found)
    if (type != "full_attention")
      refuse_key(file, "layer_types", cat("with ", printable(type.dump(), 60)),
                 "full_attention in every layer");
}

// transformers treats an absent norm_topk_prob as false.
void check_expert_weights(const Json& config, const std::string& file) {
  const auto found = config.find("norm_topk_prob");
  if (found != config.end() && *found == true) return;
  refuse_key(file, "norm_topk_prob",
             found == config.end() ? "missing (false by default)"
                                   : printable(found->dump(), 60),
             "true");
}

double config_number(const Json& config, const char* key, double absent,
                     const std::string& file) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return absent;
  if (found->is_number()) return found->get<double>();
  throw UsageError(cat(file, ": ", key, ": expected a number, found ",
                       printable(found->dump(), 60)));
}

// True for a key that is present and not null.
bool says(const Json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && !found->is_null();
}

// Returns 0 if the file does not say.
int64_t context_in(const Json& config, const std::string& file) {
  constexpr const char* kKey = "max_position_embeddings";
  return says(config, kKey)
             ? get_integer(config, kKey, 1, int64_t{1} << 30, file)
             : 0;
}

// A coefficient below 0 is left for the configuration to refuse.
std::optional<double> balance_in(const Json& config, const std::string& file) {
  constexpr const char* kKey = "router_aux_loss_coef";
  if (!says(config, kKey)) return std::nullopt;
  return config_number(config, kKey, 0, file);
}

// Newer files keep the rotary parameters in a separate object.
double rope_base_of(const Json& config, const std::string& file) {
  constexpr double kUsual = 10000;
  const auto rope = config.find("rope_parameters");
  if (rope == config.end() || !rope->is_object())
    return config_number(config, "rope_theta", kUsual, file);
  for (const char* key : {"rope_type", "type"}) {
    const auto type = rope->find(key);
    if (type != rope->end() && *type != "default")
      refuse_key(file, cat("rope_parameters.", key),
                 printable(type->dump(), 60), "\"default\"");
  }
  const auto turned = rope->find("partial_rotary_factor");
  if (turned != rope->end() && !turned->is_null() && *turned != 1)
    refuse_key(file, "rope_parameters.partial_rotary_factor",
               printable(turned->dump(), 60), "1");
  // An outer value counts if there is no inner one.
  return config_number(*rope, "rope_theta",
                       config_number(config, "rope_theta", kUsual, file), file);
}

void check_type(const Json& config, const std::string& file) {
  const std::string type = ConfigMembers(config, file).model_type();
  for (const char* known : {"", "qwen3", "qwen3_moe", "llama"})
    if (type == known) return;
  refuse_key(file, "model_type", quoted(type), kTrainedTypes,
             find_family(type) != nullptr);
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
  add("model.qk_norm", a.qk_norm);
  add("model.rope_base", beside.rope_base);
  add("model.norm_epsilon", beside.norm_epsilon);
  if (beside.context > 0) add("model.context", beside.context);
  add("model.experts", a.experts.count);
  add("model.shared_experts", a.experts.shared);
  if (a.experts.count == 0) return out;
  add("model.experts_per_token",
      a.experts.per_token > 0 ? a.experts.per_token : kQwen3ExpertsPerToken);
  add("model.expert_ffn", a.experts.ffn);
  if (beside.balance_coefficient)
    add("model.balance_coefficient", *beside.balance_coefficient);
  return out;
}

[[noreturn]] void refuse_model(const std::string& source) {
  std::vector<std::string> known;
  for (const PresetInfo& preset : presets()) known.push_back(preset.name);
  throw UsageError(
      cat("model ", quoted(source), " is neither a known model nor a file",
          did_you_mean(source, known), "; known are ", join(known, ", "),
          ", and any config.json of Qwen3, Qwen3-MoE or Llama 3"));
}

// Returns the config.json of a folder, or the file itself.
std::filesystem::path config_path(const std::string& source) {
  std::filesystem::path path = source;
  if (is_folder(path)) path /= "config.json";
  if (source.empty() || !is_there(path)) refuse_model(path.string());
  return path;
}

}  // namespace

Settings config_json_settings(std::string_view text, const std::string& file) {
  const Json root = parse_json(
      text, {.what = file, .max_bytes = kMaxConfigFile, .max_values = 100'000});
  if (!root.is_object())
    throw UsageError(cat(file, ": expected an object, as an HF config.json"));
  check_type(root, file);
  // Comes before the other keys, because it refuses a file without a
  // model_type.
  const Architecture shapes = read_config(text, file);
  const Json& config = text_part(root);
  check_fixed_keys(config, file);
  check_rope_scaling(config, file);
  check_layer_types(config, file);
  check_shapes(shapes, file);
  if (shapes.experts.count > 0) check_expert_weights(config, file);
  return as_settings(
      shapes,
      {.name = name_of_model_file(file),
       .rope_base = rope_base_of(config, file),
       .norm_epsilon = config_number(config, "rms_norm_eps", 1e-6, file),
       .context = context_in(config, file),
       .balance_coefficient = balance_in(config, file)},
      file);
}

Settings architecture_settings(const TrainConfig& config,
                               const std::string& origin) {
  TrainConfig copy = config;
  copy.model.context = context_length_of(config);
  Settings out;
  for (const ConfigKey& key : config_keys(copy))
    if (key.name.starts_with("model.") && key.name != "model.length" &&
        key.name != "model.recompute")
      out.push_back({key.name, RawText{key.text()}, origin});
  return out;
}

void refuse_contradictions(const TrainConfig& config,
                           const Settings& settings) {
  TrainConfig copy = config;
  const std::vector<ConfigKey> keys = config_keys(copy);
  for (const Setting& setting : settings) {
    const ConfigKey& key = find_key(keys, setting.key);
    // What a resumed run may change belongs to the run: it changes no tensor
    // and no forward result.
    if (key.on_resume == OnResume::kMayChange) continue;
    const std::string asked = key.text();
    key.set(setting);
    if (key.text() == asked) continue;
    throw UsageError(cat(setting.key, " (", config.origin(setting.key), ") is ",
                         asked, ", but ", setting.origin, " has ", key.text(),
                         "; leave it out"));
  }
}

Settings model_settings(const std::string& source) {
  if (const Architecture* preset = find_preset(source)) {
    check_shapes(*preset, source);
    BesideShapes beside{.name = source};
    if (!preset->qk_norm) {
      beside.rope_base = kLlama3RopeBase;
      beside.norm_epsilon = kLlama3Epsilon;
    }
    return as_settings(*preset, beside, "model " + source);
  }
  const std::string path = config_path(source).string();
  return config_json_settings(
      read_file(path, kMaxConfigFile, "the model's configuration"), path);
}

}  // namespace canzona::train

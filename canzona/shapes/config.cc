#include "canzona/shapes/config.h"

#include <algorithm>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/shapes/read_model.h"
#include "canzona/shapes/tensor.h"

namespace canzona::shapes {
namespace {

using Members = ConfigMembers;
using Keys = std::vector<std::string>;

int64_t head_dim(const Members& members, int64_t absent) {
  if (members.has("head_dim")) return members.number("head_dim");
  if (absent > 0 && !members.mentions("head_dim")) return absent;
  const int64_t hidden = members.number("hidden_size");
  const int64_t heads = members.number("num_attention_heads");
  if (heads == 0 || hidden % heads != 0) {
    throw UsageError(cat(members.file(), ": head_dim is missing and ", heads,
                         " num_attention_heads do not divide hidden_size ",
                         hidden));
  }
  return hidden / heads;
}

// Refuses settings that a list of tensors cannot represent.
void refuse_flag(const Members& members, const char* key) {
  if (!members.flag(key)) return;
  throw UsageError(cat(members.file(), ": ", key, " = true is not supported; ",
                       "a list of names and shapes describes any model"));
}

Architecture read_common(const Members& members) {
  Architecture a;
  a.layers = members.number("num_hidden_layers");
  a.hidden = members.number("hidden_size");
  a.ffn = members.number("intermediate_size");
  a.vocab = members.number("vocab_size");
  a.heads = members.number("num_attention_heads");
  a.kv_heads = members.number_or("num_key_value_heads", a.heads);
  a.tied = members.tied();
  return a;
}

Architecture read_mistral(const Members& members) {
  Architecture a = read_common(members);
  a.head_dim = head_dim(members, 0);
  return a;
}

Architecture read_llama(const Members& members) {
  Architecture a = read_mistral(members);
  a.attention_bias = members.flag("attention_bias");
  a.mlp_bias = members.flag("mlp_bias");
  return a;
}

// q, k and v have biases, whatever the configuration says.
Architecture read_qwen2(const Members& members) {
  Architecture a = read_mistral(members);
  a.attention_bias = true;
  a.o_bias = false;
  return a;
}

Architecture read_qwen3(const Members& members) {
  constexpr int64_t kUsualHeadDim = 128;
  Architecture a = read_common(members);
  a.head_dim = head_dim(members, kUsualHeadDim);
  a.attention_bias = members.flag("attention_bias");
  a.qk_norm = true;
  return a;
}

// The experts of Qwen's models.
void read_qwen_experts(const Members& members, ExpertNumbers& experts) {
  experts.count = members.either("num_experts", "num_local_experts");
  experts.ffn = members.number("moe_intermediate_size");
  experts.every = members.number_or("decoder_sparse_step", 1);
  experts.phase = 1;
  experts.dense_layers = members.layers("mlp_only_layers");
  experts.per_token = members.experts_per_token();
}

Architecture read_qwen3_moe(const Members& members) {
  Architecture a = read_common(members);
  a.head_dim = head_dim(members, 0);
  a.attention_bias = members.flag("attention_bias");
  a.qk_norm = true;
  read_qwen_experts(members, a.experts);
  return a;
}

Architecture read_qwen2_moe(const Members& members) {
  Architecture a = read_qwen2(members);
  read_qwen_experts(members, a.experts);
  a.experts.gated_shared_ffn =
      members.number("shared_expert_intermediate_size");
  return a;
}

// The vision tower keeps the names and shapes of its checkpoint; values that a
// configuration leaves out are those of all published sizes.
Architecture read_qwen25_vl(const Members& members) {
  Architecture a = read_qwen2(members);
  const std::optional<Members> vision = members.part("vision_config");
  if (!vision) {
    throw UsageError(cat(members.file(), ": vision_config is missing"));
  }
  a.vision = {.depth = vision->number_or("depth", 32),
              .hidden = vision->number_or("hidden_size", 1280),
              .heads = vision->number_or("num_heads", 16),
              .ffn = vision->number_or("intermediate_size", 3420),
              .channels = vision->number_or("in_chans", 3),
              .frames = vision->number_or("temporal_patch_size", 2),
              .patch = vision->number_or("patch_size", 14),
              .merge = vision->number_or("spatial_merge_size", 2)};
  const VisionNumbers& v = a.vision;
  if (v.heads < 1 || v.hidden % v.heads != 0)
    throw UsageError(cat(members.file(), ": vision_config.num_heads=", v.heads,
                         " does not divide hidden_size=", v.hidden));
  return a;
}

std::vector<int64_t> linear_layers(const Members& members, int64_t layers) {
  if (members.has("layer_types")) {
    return members.layers_with("layer_types", layers, "linear_attention",
                               "full_attention");
  }
  const int64_t interval = members.number_or("full_attention_interval", 4);
  if (interval == 0) {
    throw UsageError(
        cat(members.file(), ": full_attention_interval must not be 0"));
  }
  std::vector<int64_t> list;
  for (int64_t layer = 0; layer < std::min(layers, kMaxLayers); ++layer) {
    if ((layer + 1) % interval != 0) list.push_back(layer);
  }
  return list;
}

Architecture read_qwen3_next(const Members& members) {
  constexpr int64_t kUsualHeadDim = 256;
  Architecture a = read_common(members);
  a.head_dim = head_dim(members, kUsualHeadDim);
  a.attention_bias = members.flag("attention_bias");
  a.qk_norm = true;
  a.output_gate = true;
  read_qwen_experts(members, a.experts);
  a.experts.gated_shared_ffn =
      members.number("shared_expert_intermediate_size");
  a.linear = {.key_heads = members.number("linear_num_key_heads"),
              .value_heads = members.number("linear_num_value_heads"),
              .key_dim = members.number("linear_key_head_dim"),
              .value_dim = members.number("linear_value_head_dim"),
              .kernel = members.number("linear_conv_kernel_dim"),
              .layers = linear_layers(members, a.layers)};
  return a;
}

Architecture read_mixtral(const Members& members) {
  Architecture a = read_mistral(members);
  a.experts.count = members.either("num_local_experts", "num_experts");
  a.experts.ffn = a.ffn;
  a.experts.layout = ExpertLayout::kSparseBlock;
  a.experts.per_token = members.experts_per_token();
  return a;
}

// The layer that predicts the token after next is left out.
Architecture read_deepseek(const Members& members) {
  Architecture a = read_common(members);
  a.kv_heads = a.heads;
  a.attention_bias = members.flag("attention_bias");
  a.latent = {.q_rank = members.number_or("q_lora_rank", 0),
              .kv_rank = members.number("kv_lora_rank"),
              .nope_dim = members.number("qk_nope_head_dim"),
              .rope_dim = members.number("qk_rope_head_dim"),
              .v_dim = members.number("v_head_dim")};
  if (a.latent.kv_rank == 0) {
    throw UsageError(cat(members.file(), ": kv_lora_rank must not be 0"));
  }
  a.head_dim = a.latent.nope_dim + a.latent.rope_dim;
  a.experts.count = members.either("n_routed_experts", "num_local_experts");
  a.experts.ffn = members.number("moe_intermediate_size");
  a.experts.shared = members.number_or("n_shared_experts", 0);
  a.experts.first_layer = members.number("first_k_dense_replace");
  a.experts.every = members.number_or("moe_layer_freq", 1);
  a.experts.per_token = members.experts_per_token();
  return a;
}

Architecture read_deepseek_v2(const Members& members) {
  refuse_flag(members, "mlp_bias");
  return read_deepseek(members);
}

Architecture read_glm4_moe(const Members& members) {
  Architecture a = read_mistral(members);
  a.attention_bias = members.flag("attention_bias");
  a.o_bias = false;
  a.qk_norm = members.flag("use_qk_norm");
  a.experts.count = members.either("n_routed_experts", "num_local_experts");
  a.experts.ffn = members.number("moe_intermediate_size");
  a.experts.shared = members.number_or("n_shared_experts", 1);
  a.experts.first_layer = members.number("first_k_dense_replace");
  a.experts.per_token = members.experts_per_token();
  return a;
}

Architecture read_gpt_oss(const Members& members) {
  constexpr int64_t kUsualHeadDim = 64;
  Architecture a = read_common(members);
  a.head_dim = head_dim(members, kUsualHeadDim);
  a.attention_bias = members.flag("attention_bias", true);
  a.sinks = true;
  a.experts.count = members.either("num_local_experts", "num_experts");
  a.experts.ffn = a.ffn;
  a.experts.layout = ExpertLayout::kStacked;
  a.experts.per_token = members.experts_per_token();
  return a;
}

Architecture read_olmo2(const Members& members) {
  Architecture a = read_mistral(members);
  a.attention_bias = members.flag("attention_bias");
  a.qk_norm = a.wide_qk_norm = true;
  a.norms = NormPlaces::kAfter;
  return a;
}

Architecture read_olmoe(const Members& members) {
  Architecture a = read_mistral(members);
  a.attention_bias = members.flag("attention_bias");
  a.qk_norm = a.wide_qk_norm = true;
  a.experts.count = members.either("num_experts", "num_local_experts");
  a.experts.ffn = a.ffn;
  a.experts.per_token = members.experts_per_token();
  return a;
}

Architecture read_gemma(const Members& members) {
  constexpr int64_t kUsualHeadDim = 256;
  Architecture a = read_common(members);
  a.head_dim = head_dim(members, kUsualHeadDim);
  a.attention_bias = members.flag("attention_bias");
  a.tied = members.tied(true);
  return a;
}

Architecture read_gemma2(const Members& members) {
  Architecture a = read_gemma(members);
  a.norms = NormPlaces::kAround;
  return a;
}

// Its configurations leave out values that are as in the 4B model.
Architecture read_gemma3(const Members& members) {
  Architecture a;
  a.layers = members.number("num_hidden_layers");
  a.hidden = members.number("hidden_size");
  a.ffn = members.number("intermediate_size");
  a.vocab = members.number_or("vocab_size", 262'208);
  a.heads = members.number_or("num_attention_heads", 8);
  a.kv_heads = members.number_or("num_key_value_heads", 4);
  a.head_dim = members.number_or("head_dim", 256);
  a.attention_bias = members.flag("attention_bias");
  a.qk_norm = true;
  a.norms = NormPlaces::kAround;
  a.tied = members.tied(true);
  return a;
}

Architecture read_phi3(const Members& members) {
  Architecture a = read_mistral(members);
  a.packed = true;
  return a;
}

Architecture read_gpt2(const Members& members) {
  refuse_flag(members, "add_cross_attention");
  Architecture a;
  a.layers = members.number("n_layer");
  a.hidden = members.number("n_embd");
  a.ffn = members.number_or("n_inner", 4 * a.hidden);
  a.vocab = members.number("vocab_size");
  a.heads = a.kv_heads = members.number("n_head");
  if (a.heads == 0 || a.hidden % a.heads != 0) {
    throw UsageError(cat(members.file(), ": ", a.heads,
                         " n_head do not divide n_embd ", a.hidden));
  }
  a.head_dim = a.hidden / a.heads;
  a.tied = members.tied(true);
  a.body = Body::kGpt2;
  a.positions = members.number("n_positions");
  return a;
}

Keys with_common(const Keys& more) {
  Keys keys = {"hidden_size", "intermediate_size", "num_hidden_layers",
               "vocab_size", "num_attention_heads"};
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::vector<Family> all_families() {
  const Keys common = with_common({});
  const Keys heads = with_common({"num_key_value_heads?"});
  const Keys qwen_experts =
      with_common({"num_experts|num_local_experts", "moe_intermediate_size"});
  const Keys deepseek = with_common(
      {"q_lora_rank?", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
       "v_head_dim", "n_routed_experts|num_local_experts",
       "moe_intermediate_size", "n_shared_experts?", "first_k_dense_replace"});
  const Keys shared =
      with_common({"num_experts|num_local_experts", "moe_intermediate_size",
                   "shared_expert_intermediate_size"});
  const Keys mixtral =
      with_common({"num_key_value_heads?", "num_local_experts|num_experts"});
  const Keys glm =
      with_common({"num_key_value_heads", "n_routed_experts|num_local_experts",
                   "moe_intermediate_size", "first_k_dense_replace"});
  const Keys next = with_common(
      {"num_key_value_heads", "num_experts|num_local_experts",
       "moe_intermediate_size", "shared_expert_intermediate_size",
       "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
       "linear_value_head_dim", "linear_conv_kernel_dim"});
  const Keys gemma3 = {"hidden_size", "intermediate_size", "num_hidden_layers"};
  return {{"llama", read_llama, common},
          {"mistral", read_mistral, common},
          {"mixtral", read_mixtral, mixtral},
          {"qwen2", read_qwen2, common},
          {"qwen2_moe", read_qwen2_moe, shared},
          {"qwen2_5_vl", read_qwen25_vl, common},
          {"qwen3", read_qwen3, common},
          {"qwen3_moe", read_qwen3_moe, qwen_experts},
          {"qwen3_next", read_qwen3_next, next, QkvRows::kUnknown},
          {"deepseek_v2", read_deepseek_v2, deepseek},
          {"deepseek_v3", read_deepseek, deepseek},
          {"kimi_k2", read_deepseek, deepseek},
          {"glm4_moe", read_glm4_moe, glm},
          {"gpt_oss", read_gpt_oss, mixtral},
          {"olmo2", read_olmo2, common},
          {"olmoe", read_olmoe, with_common({"num_experts|num_local_experts"})},
          {"gemma", read_gemma, heads},
          {"gemma2", read_gemma2, heads},
          {"gemma3", read_gemma3, gemma3},
          {"gemma3_text", read_gemma3, gemma3},
          {"phi3", read_phi3, common, QkvRows::kBlocks},
          {"gpt2",
           read_gpt2,
           {"n_embd", "n_layer", "n_head", "n_positions", "vocab_size"},
           QkvRows::kUnknown}};
}

}  // namespace

const std::vector<Family>& families() {
  static const std::vector<Family> list = all_families();
  return list;
}

const Family* find_family(std::string_view model_type) {
  for (const Family& family : families()) {
    if (family.model_type == model_type) return &family;
  }
  return nullptr;
}

std::vector<std::string> config_families() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.push_back(family.model_type);
  return names;
}

const Json& text_part(const Json& config) {
  const auto text = config.find("text_config");
  return text != config.end() && text->is_object() ? *text : config;
}

ConfigMembers::ConfigMembers(const Json& config, std::string file)
    : top_(config), text_(text_part(config)), file_(std::move(file)) {}

bool ConfigMembers::has(const std::string& key) const {
  const auto member = text_.find(key);
  return member != text_.end() && !member->is_null();
}

int64_t ConfigMembers::number(const char* key) const {
  return get_integer(text_, key, 0, kMaxDim, file_);
}

int64_t ConfigMembers::number_or(const char* key, int64_t absent) const {
  return has(key) ? number(key) : absent;
}

bool ConfigMembers::flag(const char* key, bool absent) const {
  return has(key) ? get_bool(text_, key, file_) : absent;
}

int64_t ConfigMembers::either(const char* name, const char* alias) const {
  if (has(name) && has(alias) && number(name) != number(alias)) {
    throw UsageError(cat(file_, ": ", name, " is ", number(name), ", ", alias,
                         " is ", number(alias)));
  }
  return number(has(name) ? name : alias);
}

int64_t ConfigMembers::experts_per_token() const {
  const char* first = nullptr;
  for (const char* key : kExpertsPerTokenKeys) {
    if (!has(key)) continue;
    if (number(key) == 0) {
      throw UsageError(cat(file_, ": ", key, " must not be 0"));
    }
    if (first == nullptr) first = key;
    either(first, key);
  }
  return first == nullptr ? 0 : number(first);
}

std::vector<int64_t> ConfigMembers::layers(const char* key) const {
  std::vector<int64_t> list;
  if (!has(key)) return list;
  const Json& member = text_.at(key);
  for (const Json& item : member.is_array() ? member : Json::array({-1})) {
    const bool fits = item.is_number_unsigned() &&
                      item.get<uint64_t>() < uint64_t{kMaxLayers};
    if (!fits) {
      throw UsageError(cat(file_, ": ", key,
                           " must be a list of layers from 0 to ",
                           kMaxLayers - 1));
    }
    list.push_back(item.get<int64_t>());
  }
  std::sort(list.begin(), list.end());
  return list;
}

std::vector<int64_t> ConfigMembers::layers_with(const char* key,
                                                int64_t num_layers,
                                                const char* chosen,
                                                const char* other) const {
  const Json& words = text_.at(key);
  const auto refuse = [&](const std::string& problem) {
    throw UsageError(cat(file_, ": ", key, " must be a list of ", num_layers,
                         " words, ", chosen, " or ", other, ", ", problem));
  };
  if (!words.is_array()) refuse("found no list");
  const auto count = static_cast<int64_t>(words.size());
  if (count != num_layers) refuse(cat("got ", count, " words"));
  std::vector<int64_t> list;
  for (int64_t layer = 0; layer < count; ++layer) {
    const Json& word = words[static_cast<size_t>(layer)];
    if (word == chosen) {
      list.push_back(layer);
    } else if (word != other) {
      refuse(cat("found something else for layer ", layer));
    }
  }
  return list;
}

std::optional<ConfigMembers> ConfigMembers::part(const char* key) const {
  const auto member = top_.find(key);
  if (member == top_.end() || !member->is_object()) return std::nullopt;
  return ConfigMembers(*member, cat(file_, ": ", key));
}

std::string ConfigMembers::model_type() const {
  constexpr const char* kKey = "model_type";
  const Json& place = has(kKey) ? text_ : top_;
  const auto member = place.find(kKey);
  const bool absent = member == place.end() || member->is_null();
  return absent ? "" : get_string(place, kKey, file_);
}

bool ConfigMembers::tied(bool absent) const {
  constexpr const char* kKey = "tie_word_embeddings";
  const Json& place = has(kKey) ? text_ : top_;
  const auto member = place.find(kKey);
  const bool unsaid = member == place.end() || member->is_null();
  return unsaid ? absent : get_bool(place, kKey, file_);
}

std::vector<std::string> ConfigMembers::missing(
    const std::vector<std::string>& required) const {
  std::vector<std::string> absent;
  for (const std::string& key : required) {
    if (!satisfies(key)) absent.push_back(key);
  }
  return absent;
}

bool ConfigMembers::satisfies(const std::string& key) const {
  if (key.ends_with('?')) return mentions(key.substr(0, key.size() - 1));
  const std::vector<std::string> names = split_text(key, '|');
  return std::any_of(names.begin(), names.end(),
                     [this](auto& name) { return has(name); });
}

namespace {

constexpr int64_t kMaxConfigBytes = 4 << 20;
constexpr int64_t kMaxConfigValues = 100'000;

Json parse_config(std::string_view json, const std::string& file) {
  return parse_json(json, {.what = printable(file),
                           .max_bytes = kMaxConfigBytes,
                           .max_values = kMaxConfigValues});
}

// A configuration is written by a program, so an unknown model_type is another
// family, not a typo, and no similar name is proposed.
[[noreturn]] void refuse_type(const ConfigMembers& members,
                              const std::string& type) {
  throw UsageError(
      cat(members.file(), ": ",
          type.empty() ? "model_type is missing"
                       : cat("unknown model_type ", quoted(type)),
          "; known ones are ", join(config_families(), ", "),
          "; the weights of any model can be read (model.safetensors or its "
          "index), and a list of names and shapes describes any: "
          "[{\"name\": \"layers.0.mlp.up\", \"shape\": [3072, 1024]}]"));
}

// Nothing is assumed about an unknown type.
QkvRows qkv_rows_of(const Json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return QkvRows::kUnknown;
  const std::string& name = type->get_ref<const std::string&>();
  if (name == "gpt_neox" || name == "bloom") return QkvRows::kByGroup;
  const Family* family = find_family(name);
  return family == nullptr ? QkvRows::kUnknown : family->qkv_rows;
}

}  // namespace

Architecture read_config(std::string_view json, const std::string& file) {
  const Json config = parse_config(json, file);
  if (!config.is_object()) {
    throw UsageError(cat(printable(file), ": expected an object"));
  }
  const ConfigMembers members(config, printable(file));
  const std::string type = members.model_type();
  const Family* family = find_family(type);
  if (family == nullptr) refuse_type(members, type);
  const std::vector<std::string> missing = members.missing(family->required);
  if (!missing.empty()) {
    throw UsageError(cat(members.file(), ": model_type ", type,
                         " needs the missing keys ", join(missing, ", ")));
  }
  return family->read(members);
}

void read_heads(std::string_view json, const std::string& file,
                FileFacts& facts) {
  const Json config = parse_config(json, file);
  if (!config.is_object()) return;
  const Json& text = text_part(config);
  const auto number = [&](const char* key) -> int64_t {
    const auto member = text.find(key);
    const bool fits = member != text.end() && member->is_number_unsigned() &&
                      member->get<uint64_t>() <= uint64_t{kMaxDim};
    return fits ? member->get<int64_t>() : 0;
  };
  const auto kv_heads = text.find("num_key_value_heads");
  const bool as_many = kv_heads == text.end() || kv_heads->is_null();
  facts.query_heads = number("num_attention_heads");
  facts.kv_heads =
      number(as_many ? "num_attention_heads" : "num_key_value_heads");
  facts.qkv_rows = qkv_rows_of(text);
  for (const char* key : kExpertsPerTokenKeys) {
    if (facts.experts_per_token == 0) facts.experts_per_token = number(key);
  }
}

}  // namespace canzona::shapes

namespace canzona {
using namespace shapes;

Model model_from_config(std::string_view json, const std::string& name,
                        const ReadOptions& options) {
  return generate_model(read_config(json, name), name, options.fused);
}

}  // namespace canzona

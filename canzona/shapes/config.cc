#include "canzona/shapes/config.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/shapes/config_members.h"
#include "canzona/shapes/read_model.h"

namespace canzona {
namespace {

using Members = ConfigMembers;
using Keys = std::vector<std::string>;

constexpr int64_t kMaxConfigBytes = 4 << 20;
constexpr int64_t kMaxConfigValues = 100'000;

Json parse_config(std::string_view json, const std::string& file) {
  return parse_json(json, {.what = printable(file),
                           .max_bytes = kMaxConfigBytes,
                           .max_values = kMaxConfigValues});
}

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

Architecture read_qwen3(const Members& members) {
  constexpr int64_t kUsualHeadDim = 128;
  Architecture a = read_common(members);
  a.head_dim = head_dim(members, kUsualHeadDim);
  a.attention_bias = members.flag("attention_bias");
  a.qk_norm = true;
  return a;
}

Architecture read_qwen3_moe(const Members& members) {
  Architecture a = read_common(members);
  a.head_dim = head_dim(members, 0);
  a.attention_bias = members.flag("attention_bias");
  a.qk_norm = true;
  a.experts.count = members.either("num_experts", "num_local_experts");
  a.experts.ffn = members.number("moe_intermediate_size");
  a.experts.every = members.number_or("decoder_sparse_step", 1);
  a.experts.phase = 1;
  a.experts.dense_layers = members.layers("mlp_only_layers");
  return a;
}

Architecture read_deepseek_v3(const Members& members) {
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
  return a;
}

struct ModelType {
  std::string name;
  Architecture (*read)(const Members& members);
  Keys required;  // beside the common ones
};

const Keys& common_keys() {
  static const Keys keys = {"hidden_size", "intermediate_size",
                            "num_hidden_layers", "vocab_size",
                            "num_attention_heads"};
  return keys;
}

const std::vector<ModelType>& model_types() {
  static const std::vector<ModelType> types = {
      {"qwen3", read_qwen3, {}},
      {"qwen3_moe",
       read_qwen3_moe,
       {"num_experts|num_local_experts", "moe_intermediate_size"}},
      {"llama", read_llama, {}},
      {"mistral", read_mistral, {}},
      {"deepseek_v3",
       read_deepseek_v3,
       {"q_lora_rank?", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim",
        "v_head_dim", "n_routed_experts|num_local_experts",
        "moe_intermediate_size", "n_shared_experts?",
        "first_k_dense_replace"}}};
  return types;
}

[[noreturn]] void refuse_type(const Members& members, const std::string& type) {
  Keys known;
  for (const ModelType& candidate : model_types()) {
    known.push_back(candidate.name);
  }
  std::string message = cat(members.file(), ": ");
  message += type.empty() ? "model_type is missing"
                          : cat("unknown model_type ", quoted(type),
                                did_you_mean(type, known));
  message += cat("; known are ", join(known, ", "));
  const Keys missing = members.missing(common_keys());
  if (!missing.empty()) message += cat("; missing keys: ", join(missing, ", "));
  throw UsageError(
      message +
      "; a list of names and shapes describes any model: "
      "[{\"name\": \"layers.0.mlp.up\", \"shape\": [3072, 1024]}]");
}

// Other types are known to lay a fused qkv out differently (phi3: all of q, all
// of k, all of v), so that nothing is assumed of them.
bool interleaves_qkv(const Json& config) {
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return false;
  const std::string& name = type->get_ref<const std::string&>();
  return name == "gpt_neox" || name == "bloom" ||
         std::any_of(model_types().begin(), model_types().end(),
                     [&](auto& known) { return known.name == name; });
}

}  // namespace

Architecture read_config(std::string_view json, const std::string& file) {
  const Json config = parse_config(json, file);
  if (!config.is_object()) {
    throw UsageError(cat(printable(file), ": expected an object"));
  }
  const Members members(config, printable(file));
  const std::string name = members.model_type();
  const auto type =
      std::find_if(model_types().begin(), model_types().end(),
                   [&](auto& candidate) { return candidate.name == name; });
  if (type == model_types().end()) refuse_type(members, name);
  Keys required = common_keys();
  required.insert(required.end(), type->required.begin(), type->required.end());
  const Keys missing = members.missing(required);
  if (!missing.empty()) {
    throw UsageError(cat(members.file(), ": model_type ", name,
                         " needs the missing keys ", join(missing, ", ")));
  }
  return type->read(members);
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
  facts.interleaved_qkv = interleaves_qkv(text);
}

Model model_from_config(std::string_view json, const std::string& name,
                        const ReadOptions& options) {
  return generate_model(read_config(json, name), name, options.fused);
}

}  // namespace canzona

#include "canzona/shapes/config.h"

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/shapes/config_members.h"
#include "canzona/shapes/families.h"
#include "canzona/shapes/read_model.h"

namespace canzona {
namespace {

constexpr int64_t kMaxConfigBytes = 4 << 20;
constexpr int64_t kMaxConfigValues = 100'000;

Json parse_config(std::string_view json, const std::string& file) {
  return parse_json(json, {.what = printable(file),
                           .max_bytes = kMaxConfigBytes,
                           .max_values = kMaxConfigValues});
}

// A configuration is written by a program: a model_type that is not known is
// another family, not a slip of the keyboard, so that no neighbour is proposed.
[[noreturn]] void refuse_type(const ConfigMembers& members,
                              const std::string& type) {
  throw UsageError(
      cat(members.file(), ": ",
          type.empty() ? "model_type is missing"
                       : cat("unknown model_type ", quoted(type)),
          "; known are ", join(config_families(), ", "),
          "; the weights of any model can be read (model.safetensors or its "
          "index), and a list of names and shapes describes any: "
          "[{\"name\": \"layers.0.mlp.up\", \"shape\": [3072, 1024]}]"));
}

// Of a type that is not known, nothing is assumed.
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

Model model_from_config(std::string_view json, const std::string& name,
                        const ReadOptions& options) {
  return generate_model(read_config(json, name), name, options.fused);
}

}  // namespace canzona

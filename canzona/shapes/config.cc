#include "canzona/shapes/config.h"

#include <algorithm>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/shapes/families.h"
#include "canzona/shapes/read_model.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

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
  if (!words.is_array()) refuse("got no list");
  const auto count = static_cast<int64_t>(words.size());
  if (count != num_layers) refuse(cat("got ", count, " words"));
  std::vector<int64_t> list;
  for (int64_t layer = 0; layer < count; ++layer) {
    const Json& word = words[static_cast<size_t>(layer)];
    if (word == chosen) {
      list.push_back(layer);
    } else if (word != other) {
      refuse(cat("got something else for layer ", layer));
    }
  }
  return list;
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
          "; known are ", join(config_families(), ", "),
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

Model model_from_config(std::string_view json, const std::string& name,
                        const ReadOptions& options) {
  return generate_model(read_config(json, name), name, options.fused);
}

}  // namespace canzona

// The members of an HF configuration, checked; null counts as absent.
//
//   ConfigMembers members(parse_json(text, {}), "config.json");
//   int64_t heads = members.number_or("num_key_value_heads", 32);
//
// Multimodal models may keep the numbers of their text model in "text_config";
// if it is present, it is what is read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_reader.h"
#include "canzona/shapes/architecture.h"
#include "canzona/shapes/records.h"

namespace canzona::shapes {

// The names that configurations have for the number of experts per token.
inline constexpr const char* kExpertsPerTokenKeys[] = {
    "num_experts_per_tok", "num_experts_per_token", "experts_per_token"};

// The part of a configuration (an object) that describes the text model.
const Json& text_part(const Json& config);

// Refers to the configuration; it must outlive this.
class ConfigMembers {
 public:
  ConfigMembers(const Json& config, std::string file);

  const std::string& file() const { return file_; }
  bool mentions(const std::string& key) const { return text_.contains(key); }
  bool has(const std::string& key) const;

  int64_t number(const char* key) const;
  int64_t number_or(const char* key, int64_t absent) const;
  bool flag(const char* key, bool absent = false) const;

  // Returns whichever of two names is present; throws UsageError if they
  // disagree.
  int64_t either(const char* name, const char* alias) const;

  // Returns the number of experts per token, under any of the names that
  // configurations use for it; 0 if none is present. Throws UsageError if it is
  // 0 or the names disagree.
  int64_t experts_per_token() const;

  // Returns numbers of layers, ascending; none if absent.
  std::vector<int64_t> layers(const char* key) const;
  // Returns the layers whose word in a list of one word per layer is `chosen`,
  // ascending. Throws UsageError if the list does not have `num_layers`
  // entries, or has a word that is neither `chosen` nor `other`.
  std::vector<int64_t> layers_with(const char* key, int64_t num_layers,
                                   const char* chosen, const char* other) const;

  // Returns the members of another object of the configuration, such as
  // "vision_config"; nothing if it has none.
  std::optional<ConfigMembers> part(const char* key) const;

  // These two may stand outside the text model's object.
  std::string model_type() const;
  bool tied(bool absent = false) const;

  // Returns the keys that are missing. "a|b" is present if either is; "a?" is
  // present even if it is null.
  std::vector<std::string> missing(
      const std::vector<std::string>& required) const;

 private:
  bool satisfies(const std::string& key) const;

  const Json& top_;
  const Json& text_;
  std::string file_;
};

// Reads an HF config.json into the numbers of a model.
//
// Known model types are the families above. If there is a nested text_config,
// only that text model is read. Layers that predict the token after next
// (DeepSeek-V3, GLM-4.5, Qwen3-Next) are left out.

// Returns a model's name from its file: the folder's name if the file has the
// same name in every model.
std::string name_of_model_file(const std::string& path);

// UsageError lists all known types, or all missing keys of a known one.
Architecture read_config(std::string_view json, const std::string& file);

// Reads the heads and the experts per token from a config.json beside weights.
// Any model type is accepted; keys that are absent or odd leave these unknown.
// Throws UsageError only if the text is not JSON.
void read_heads(std::string_view json, const std::string& file,
                FileFacts& facts);

// The families of models whose HF config.json is understood, by model_type.
//
// Adding a family is one line of the table in config.cc and a function that
// reads its keys into an Architecture. A feature that Architecture does not
// have yet (another norm, another layout) is a new field there, with its
// tensors in generate.cc.
struct Family {
  std::string model_type;
  // Called when all required keys are present; UsageError names an odd value.
  Architecture (*read)(const ConfigMembers& members) = nullptr;
  // In the form that ConfigMembers::missing takes.
  std::vector<std::string> required = {};
  // The order of rows of a qkv_proj in weights beside such a configuration.
  QkvRows qkv_rows = QkvRows::kByGroup;
};

const std::vector<Family>& families();

// Returns nullptr if the type is not known.
const Family* find_family(std::string_view model_type);

// The model_types of all families.
std::vector<std::string> config_families();

}  // namespace canzona::shapes

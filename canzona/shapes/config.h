// The members of an HF configuration, checked; null counts as absent.
//
//   ConfigMembers members(parse_json(text, {}), "config.json");
//   int64_t heads = members.number_or("num_key_value_heads", 32);
//
// Models with pictures or sound keep the numbers of their text part in
// "text_config"; where it is there, it is what is read.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/json_reader.h"
#include "canzona/shapes/architecture.h"
#include "canzona/shapes/records.h"

namespace canzona {

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

  // Whichever of two names is there; UsageError if they disagree.
  int64_t either(const char* name, const char* alias) const;

  // The number of experts that a token visits, under any of the names that
  // configurations have for it; 0: none of them is there. UsageError if it is 0
  // or if the names disagree.
  int64_t experts_per_token() const;

  // Numbers of layers, ascending; absent: none.
  std::vector<int64_t> layers(const char* key) const;
  // The layers whose word in a list of one word per layer is `chosen`,
  // ascending. UsageError if the list has another length than `num_layers`, or
  // a word that is neither `chosen` nor `other`.
  std::vector<int64_t> layers_with(const char* key, int64_t num_layers,
                                   const char* chosen, const char* other) const;

  // These two may stand outside the text part.
  std::string model_type() const;
  bool tied(bool absent = false) const;

  // The keys that are not there. "a|b" is there if one of both is; "a?" is
  // there if it is mentioned, be it as null.
  std::vector<std::string> missing(
      const std::vector<std::string>& required) const;

 private:
  bool satisfies(const std::string& key) const;

  const Json& top_;
  const Json& text_;
  std::string file_;
};

// HF config.json → the numbers of a model.
//
// Known model types are those of families.h. Models with a nested text_config
// are read in their text part only. Layers that predict the token after the
// next (DeepSeek-V3, GLM-4.5, Qwen3-Next) are left out.

// Returns the name of a model in this file: the folder's name, for files that
// are called the same in every model.
std::string name_of_model_file(const std::string& path);

// UsageError lists all known types, or all missing keys of a known one.
Architecture read_config(std::string_view json, const std::string& file);

// Reads what a config.json beside weights says of their heads and of experts
// per token. Any model type; keys that are absent or odd leave these unknown.
// UsageError only if the text is no JSON.
void read_heads(std::string_view json, const std::string& file,
                FileFacts& facts);

}  // namespace canzona

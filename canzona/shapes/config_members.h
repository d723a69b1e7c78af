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
#include <vector>

#include "canzona/base/json_reader.h"

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

}  // namespace canzona

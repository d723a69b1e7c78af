#include "canzona/train/settings.h"

#include <cmath>
#include <set>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/rules/facts.h"
#include "canzona/train/config_keys.h"

namespace canzona::train {
namespace {

constexpr int64_t kMaxBytes = 1 << 20;

SettingValue json_value(const Json& value, const std::string& key,
                        const std::string& file) {
  if (value.is_boolean()) return value.get<bool>();
  // A number above 2^63 is out of bounds anyway; this way its text is shown
  // correctly.
  const bool huge = value.is_number_unsigned() &&
                    std::cmp_greater(value.get<uint64_t>(), INT64_MAX);
  if (value.is_number_integer() && !huge) return value.get<int64_t>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  throw UsageError(cat(key, " (", file,
                       "): expected a number, a text, true or false, found ",
                       value.is_array() ? "an array" : "null"));
}

void add_members(const Json& object, const std::string& prefix,
                 const std::string& file, Settings& out) {
  for (const auto& [name, value] : object.items()) {
    const std::string key = prefix + name;
    if (value.is_object())
      add_members(value, key + ".", file, out);
    else
      out.push_back({key, json_value(value, key, file), file});
  }
}

// {"model.layers": 1, "model": {"layers": 2}}
void refuse_twice(const Settings& settings) {
  std::set<std::string> seen;
  for (const Setting& setting : settings)
    if (!seen.insert(setting.key).second)
      throw UsageError(
          cat(setting.key, " (", setting.origin, "): given twice in one file"));
}

bool is_json(const std::string& path, std::string_view text) {
  if (path.ends_with(".json")) return true;
  if (path.ends_with(".toml")) return false;
  const size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{';
}

struct Describe {
  std::string operator()(const RawText& raw) const { return quoted(raw.text); }
  std::string operator()(bool truth) const { return truth ? "true" : "false"; }
  std::string operator()(int64_t number) const { return cat(number); }
  // "3.0", as in the file, to show that the fault is that it is not an integer.
  std::string operator()(double number) const {
    const std::string text = number_text(number);
    const bool looks_whole =
        text.find_first_not_of("-0123456789") == std::string::npos &&
        std::abs(number) < 0x1p63;
    return looks_whole ? text + ".0" : text;
  }
  std::string operator()(const std::string& text) const {
    return cat("the text ", quoted(text));
  }
};

}  // namespace

Setting parse_setting(std::string_view text, const std::string& origin) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    throw UsageError(cat(origin, " ", quoted(text),
                         ": expected KEY=VALUE, such as steps=100"));
  return {std::string(text.substr(0, equals)),
          RawText{std::string(text.substr(equals + 1))}, origin};
}

Settings json_settings(std::string_view text, const std::string& file) {
  const Json root = parse_json(
      text, {.what = file, .max_bytes = kMaxBytes, .max_values = 100'000});
  if (!root.is_object())
    throw UsageError(cat(file, ": expected an object of keys"));
  const auto kept = root.find("config");
  const bool is_summary = kept != root.end() && kept->is_object();
  Settings out;
  add_members(is_summary ? *kept : root, "", file, out);
  refuse_twice(out);
  if (is_summary)
    std::erase_if(out, [](const Setting& setting) {
      return setting.key == "run" || setting.key == "ranks";
    });
  return out;
}

Settings read_config_file(const std::string& path) {
  const std::string text = read_file(path, kMaxBytes, "the configuration");
  return is_json(path, text) ? json_settings(text, path)
                             : toml_settings(text, path);
}

std::string describe(const SettingValue& value) {
  return std::visit(Describe{}, value);
}

namespace {

using Values = std::vector<std::pair<const char*, const char*>>;

struct TrainPreset {
  const char* name;
  const char* summary;
  const char* base;  // "": none; its values are applied first
  Values values;
};

// Heads and KV heads are divisible by 4, layers by 2, the batch by 8: meshes of
// up to tp=4, pp=2 and dp=8 fit.
const std::vector<TrainPreset>& table() {
  static const std::vector<TrainPreset> presets = {
      {"tiny",
       "0.85M parameters; a minute on two cores",
       "",
       {{"model.layers", "4"},
        {"model.hidden", "128"},
        {"model.ffn", "384"},
        {"model.heads", "8"},
        {"model.kv_heads", "4"},
        {"model.head_dim", "16"},
        {"model.length", "64"},
        {"batch.global", "16"},
        {"batch.micro", "2"},
        {"steps", "200"},
        {"schedule.warmup", "10"},
        {"adamw.learning_rate", "0.003"}}},
      {"small",
       "9M parameters; for comparisons of rules",
       "",
       {{"model.layers", "6"},
        {"model.hidden", "384"},
        {"model.ffn", "768"},
        {"model.heads", "8"},
        {"model.kv_heads", "4"},
        {"model.head_dim", "64"},
        {"model.length", "128"},
        {"batch.global", "8"},
        {"batch.micro", "8"},
        {"steps", "600"},
        {"schedule.warmup", "30"},
        {"adamw.learning_rate", "0.004"}}},
      {"moe-tiny",
       "tiny with 8 experts of which a token takes 2",
       "tiny",
       {{"model.experts", "8"},
        {"model.experts_per_token", "2"},
        {"model.expert_ffn", "128"}}},
  };
  return presets;
}

const TrainPreset& find(const std::string& name) {
  for (const TrainPreset& preset : table())
    if (preset.name == name) return preset;
  throw UsageError(cat("unknown preset ", quoted(name),
                       did_you_mean(name, preset_names()), "; presets are ",
                       join(preset_names(), ", ")));
}

void append(const Values& values, const std::string& origin, Settings& out) {
  for (const auto& [key, value] : values)
    out.push_back({key, RawText{value}, origin});
}

void append_preset(const TrainPreset& preset, const std::string& origin,
                   Settings& out) {
  if (*preset.base != '\0') append_preset(find(preset.base), origin, out);
  append(preset.values, origin, out);
}

const TunedRate* tuned_rate(const RuleEntry& rule, const TrainPreset& preset) {
  for (const TunedRate& tuned : rule.tuned)
    if (tuned.preset == preset.name) return &tuned;
  return *preset.base == '\0' ? nullptr : tuned_rate(rule, find(preset.base));
}

// The learning rate that suits the rule in this preset, otherwise its default.
Setting learning_rate(const RuleEntry& rule, const TrainPreset& preset,
                      const std::string& origin) {
  const char* key = "rule.learning_rate";
  if (const TunedRate* tuned = tuned_rate(rule, preset))
    return {key, RawText{tuned->learning_rate}, cat(origin, ", ", rule.name)};
  return {key, RawText{rule.make({})->options().at("learning_rate")},
          rule.name + "'s own"};
}

}  // namespace

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const TrainPreset& preset : table()) names.emplace_back(preset.name);
  return names;
}

std::string preset_summary(const std::string& preset) {
  return find(preset).summary;
}

Settings preset_settings(const std::string& preset, const std::string& rule) {
  const TrainPreset& found = find(preset);
  const std::string origin = "preset " + preset;
  Settings out;
  append_preset(found, origin, out);
  for (const RuleEntry& entry : rule_table())
    if (entry.name == rule) out.push_back(learning_rate(entry, found, origin));
  return out;
}

}  // namespace canzona::train

#include "canzona/train/config.h"

#include <algorithm>
#include <string_view>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/train/config_keys.h"
#include "canzona/train/presets.h"
#include "canzona/train/value_text.h"

namespace canzona {
namespace {

bool is_rule_option(const std::string& key) {
  return key.starts_with(kRuleOption);
}

std::string option_name(const std::string& key) {
  return key.substr(std::string_view(kRuleOption).size());
}

struct OptionText {
  std::string operator()(const RawText& raw) const { return raw.text; }
  std::string operator()(bool truth) const { return truth ? "on" : "off"; }
  std::string operator()(int64_t number) const { return cat(number); }
  std::string operator()(double number) const { return number_text(number); }
  std::string operator()(const std::string& text) const { return text; }
};

// These have keys of their own.
void refuse_own_keys(const Setting& setting) {
  const std::string name = option_name(setting.key);
  if (name == "learning_rate" || name == "weight_decay")
    throw UsageError(cat(setting.key, " (", setting.origin,
                         "): expected the key rule.", name));
}

[[noreturn]] void refuse_unknown(const Setting& setting,
                                 const std::vector<ConfigKey>& keys,
                                 const std::string& rule) {
  std::vector<std::string> known;
  known.reserve(keys.size());
  for (const ConfigKey& key : keys) known.push_back(key.name);
  for (const RuleEntry& entry : rule_table())
    for (const OptionFact& option : entry.options)
      if (entry.name == rule) known.push_back(kRuleOption + option.name);
  throw UsageError(cat(setting.origin, ": unknown key ", quoted(setting.key),
                       did_you_mean(setting.key, known),
                       "; canzona config show lists the keys"));
}

void apply(const Settings& settings, const std::vector<ConfigKey>& keys,
           TrainConfig& config) {
  for (const Setting& setting : settings) {
    const auto key = std::ranges::find(keys, setting.key, &ConfigKey::name);
    if (key != keys.end()) {
      key->set(setting);
    } else if (is_rule_option(setting.key)) {
      refuse_own_keys(setting);
      config.rule.options[option_name(setting.key)] =
          std::visit(OptionText{}, setting.value);
    } else {
      refuse_unknown(setting, keys, config.rule.name);
    }
    config.origins[setting.key] = setting.origin;
  }
}

// Only what decides which values the preset gives.
Settings named(const Settings& given, std::string_view name) {
  Settings out;
  for (const Setting& setting : given)
    if (setting.key == name) out.push_back(setting);
  return out;
}

}  // namespace

TrainConfig make_config(const Settings& given) {
  TrainConfig config;
  const std::vector<ConfigKey> keys = config_keys(config);
  for (const ConfigKey& key : keys) config.origins[key.name] = "default";
  apply(named(given, "preset"), keys, config);
  apply(named(given, "rule.name"), keys, config);
  apply(preset_settings(config.preset, config.rule.name), keys, config);
  apply(given, keys, config);
  check_config(config);
  if (config.ranks > 0 || !config.mesh.empty()) settle_mesh(config, {});
  return config;
}

}  // namespace canzona

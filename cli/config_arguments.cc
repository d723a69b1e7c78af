#include "cli/config_arguments.h"

#include <algorithm>
#include <array>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/terminal_style.h"
#include "canzona/shapes/read_model.h"
#include "canzona/train/config_keys.h"
#include "canzona/train/model_settings.h"
#include "canzona/train/presets.h"
#include "cli/offer.h"
#include "cli/precision.h"

namespace canzona::cli {
namespace {

constexpr const char* kWhatGroup = "What is trained";
constexpr const char* kRanksGroup = "On which ranks";
constexpr const char* kMemoryGroup = "Memory and links (see docs/zero.md)";
constexpr const char* kKeysGroup = "Any setting (see canzona config show)";

// Flags that stand for a key; without a label they say yes.
struct ConfigFlag {
  const char* name;
  const char* key;
  const char* label;
  const char* group;
};
constexpr auto kFlags = std::to_array<ConfigFlag>({
    {"--data", "data.path", "PATH", kWhatGroup},
    {"--preset", "preset", "NAME", kWhatGroup},
    {"--rule", "rule.name", "RULE", kWhatGroup},
    {"--steps", "steps", "N", kWhatGroup},
    {"--learning-rate", "rule.learning_rate", "RATE", kWhatGroup},
    {"--seed", "seed", "N", kWhatGroup},
    {"--max-skipped", "max_skipped", "N", kWhatGroup},
    {"--run", "run", "DIR", kWhatGroup},
    {"--mesh", "mesh", "AXES", kRanksGroup},
    {"--ranks", "ranks", "N", kRanksGroup},
    {"--strategy", "plan.strategy", "NAME", kRanksGroup},
    {"--transport", "transport", "KIND", kRanksGroup},
    {"--memory-cap", "plan.memory_cap", "BYTES", kMemoryGroup},
    {"--zero", "zero.sizes", "SIZES", kMemoryGroup},
    {"--zero-experts", "zero.experts", "SIZES", kMemoryGroup},
    {"--overlap", "zero.overlap", "MODE", kMemoryGroup},
    {"--message", "zero.message", "UNIT", kMemoryGroup},
    {"--prefetch", "zero.prefetch", "K", kMemoryGroup},
    {"--replica-sum", "zero.replica_sum", "HOW", kMemoryGroup},
    {"--collectives", "zero.collectives", "HOW", kMemoryGroup},
    {"--reuse", "zero.reuse", nullptr, kMemoryGroup},
    {"--ranks-per-node", "links.ranks_per_node", "N", kMemoryGroup},
    {"--link", "links.model", "SPEEDS", kMemoryGroup},
});

const ConfigKey& find_key(const std::vector<ConfigKey>& keys,
                          const char* name) {
  const auto key = std::ranges::find(keys, name, &ConfigKey::name);
  CANZONA_CHECK(key != keys.end(), "key ", name);
  return *key;
}

std::string description(const ConfigKey& key) {
  std::string out = key.help;
  if (!key.words.empty()) out += ": " + join(key.words, ", ");
  const std::string value = key.text();
  return value.empty() || value == "0" ? out : cat(out, " [", value, "]");
}

void add_list(CLI::App& app, const char* name, std::vector<std::string>& to,
              const char* label, const char* help, const char* group) {
  app.add_option(name, to, help)
      ->allow_extra_args(false)
      ->option_text(label)
      ->group(group);
}

// A model is no preset; its name is easily taken for one.
void refuse_model_as_preset(const std::string& name) {
  for (const PresetInfo& model : presets())
    if (model.name == name)
      throw UsageError(cat("--preset ", quoted(name), ": expected ",
                           join(preset_names(), ", "), "; it is a model: try ",
                           "--model ", name));
}

void add_config_flag(CLI::App& app, const ConfigFlag& flag,
                     const ConfigKey& key, std::string& value) {
  if (flag.label == nullptr)
    app.add_flag(flag.name, value, key.help)->group(flag.group);
  else
    offer_words(app.add_option(flag.name, value, description(key))
                    ->option_text(flag.label)
                    ->group(flag.group),
                key.words);
}

}  // namespace

void add_config_arguments(CLI::App& app, ConfigArguments& arguments) {
  TrainConfig defaults;
  const std::vector<ConfigKey> keys = config_keys(defaults);
  for (const ConfigFlag& flag : kFlags) {
    add_config_flag(app, flag, find_key(keys, flag.key),
                    arguments.flags[flag.name]);
    if (flag.key != std::string_view("preset")) continue;
    app.add_option("--model", arguments.model,
                   "the architecture: a config.json of Qwen3 or Qwen3-MoE, a "
                   "folder with one, or a name of canzona models; the preset "
                   "gives the rest")
        ->option_text("MODEL")
        ->group(kWhatGroup);
  }
  add_list(app, "--rule-option", arguments.rule_options, "NAME=VALUE",
           "an option of the rule (see canzona rules RULE); repeatable",
           kWhatGroup);
  app.add_option("--config", arguments.file,
                 "keys and values in TOML or JSON, or the summary.json of a "
                 "run, to repeat it")
      ->option_text("FILE")
      ->group(kKeysGroup);
  add_list(app, "--set", arguments.set, "KEY=VALUE",
           "a key of the configuration; repeatable, the last one wins",
           kKeysGroup);
}

TrainConfig read_config(const ConfigArguments& arguments) {
  refuse_model_as_preset(arguments.flags.at("--preset"));
  Settings given;
  if (!arguments.model.empty()) given = model_settings(arguments.model);
  if (!arguments.file.empty())
    for (Setting& setting : read_config_file(arguments.file))
      given.push_back(std::move(setting));
  for (const std::string& text : arguments.set)
    given.push_back(parse_setting(text, "--set"));
  for (const ConfigFlag& flag : kFlags)
    if (const std::string& text = arguments.flags.at(flag.name); !text.empty())
      given.push_back({flag.key, RawText{text}, flag.name});
  for (const std::string& text : arguments.rule_options) {
    Setting option = parse_setting(text, "--rule-option");
    option.key = kRuleOption + option.key;
    given.push_back(option);
  }
  return make_settled_config(std::move(given));
}

std::string train_presets_help() {
  constexpr size_t kColumn = 16;
  std::string out = "Presets:\n";
  for (const std::string& name : preset_names())
    out += "  " + pad_right(name, kColumn) + preset_summary(name) + "\n";
  return out;
}

}  // namespace canzona::cli

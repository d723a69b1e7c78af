#include "cli/config_arguments.h"

#include <algorithm>
#include <array>

#include "canzona/base/check.h"
#include "canzona/base/text.h"
#include "canzona/report/terminal_style.h"
#include "canzona/train/config_keys.h"
#include "canzona/train/model_settings.h"
#include "canzona/train/presets.h"
#include "cli/offer.h"

namespace canzona::cli {
namespace {

constexpr const char* kGroup = "What is trained, and how";

// Flags that stand for a key; without a label they say yes.
struct Flag {
  const char* name;
  const char* key;
  const char* label;
};
constexpr auto kFlags = std::to_array<Flag>({
    {"--preset", "preset", "NAME"},
    {"--data", "data.path", "PATH"},
    {"--steps", "steps", "N"},
    {"--seed", "seed", "N"},
    {"--rule", "rule.name", "RULE"},
    {"--learning-rate", "rule.learning_rate", "RATE"},
    {"--mesh", "mesh", "AXES"},
    {"--ranks", "ranks", "N"},
    {"--strategy", "plan.strategy", "NAME"},
    {"--transport", "transport", "KIND"},
    {"--zero", "zero.sizes", "SIZES"},
    {"--zero-experts", "zero.experts", "SIZES"},
    {"--overlap", "zero.overlap", "MODE"},
    {"--message", "zero.message", "UNIT"},
    {"--prefetch", "zero.prefetch", "K"},
    {"--replica-sum", "zero.replica_sum", "HOW"},
    {"--collectives", "zero.collectives", "HOW"},
    {"--reuse", "zero.reuse", nullptr},
    {"--memory-cap", "plan.memory_cap", "BYTES"},
    {"--ranks-per-node", "links.ranks_per_node", "N"},
    {"--link", "links.model", "SPEEDS"},
    {"--run", "run", "DIR"},
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
              const char* label, const char* help) {
  app.add_option(name, to, help)
      ->allow_extra_args(false)
      ->option_text(label)
      ->group(kGroup);
}

}  // namespace

void add_config_arguments(CLI::App& app, ConfigArguments& arguments) {
  TrainConfig defaults;
  const std::vector<ConfigKey> keys = config_keys(defaults);
  app.add_option("--model", arguments.model,
                 "the architecture: a config.json of Qwen3 or Qwen3-MoE, a "
                 "folder with one, or a name of canzona models; the preset "
                 "gives the rest")
      ->option_text("MODEL")
      ->group(kGroup);
  app.add_option("--config", arguments.file,
                 "keys and values in TOML or JSON, or the summary.json of a "
                 "run, to repeat it")
      ->option_text("FILE")
      ->group(kGroup);
  add_list(app, "--set", arguments.set, "KEY=VALUE",
           "a key of the configuration; repeatable, the last one wins");
  for (const Flag& flag : kFlags) {
    const ConfigKey& key = find_key(keys, flag.key);
    std::string& value = arguments.flags[flag.name];
    if (flag.label == nullptr)
      app.add_flag(flag.name, value, key.help)->group(kGroup);
    else
      offer_words(app.add_option(flag.name, value, description(key))
                      ->option_text(flag.label)
                      ->group(kGroup),
                  key.words);
  }
  add_list(app, "--rule-option", arguments.rule_options, "NAME=VALUE",
           "an option of the rule (see canzona rules RULE); repeatable");
}

TrainConfig read_config(const ConfigArguments& arguments) {
  Settings given;
  if (!arguments.model.empty()) given = model_settings(arguments.model);
  if (!arguments.file.empty())
    for (Setting& setting : read_config_file(arguments.file))
      given.push_back(std::move(setting));
  for (const std::string& text : arguments.set)
    given.push_back(parse_setting(text, "--set"));
  for (const Flag& flag : kFlags)
    if (const std::string& text = arguments.flags.at(flag.name); !text.empty())
      given.push_back({flag.key, RawText{text}, flag.name});
  for (const std::string& text : arguments.rule_options) {
    Setting option = parse_setting(text, "--rule-option");
    option.key = kRuleOption + option.key;
    given.push_back(option);
  }
  return make_config(given);
}

std::string train_presets_help() {
  constexpr size_t kColumn = 16;
  std::string out = "Presets:\n";
  for (const std::string& name : preset_names())
    out += "  " + pad_right(name, kColumn) + preset_summary(name) + "\n";
  return out;
}

}  // namespace canzona::cli

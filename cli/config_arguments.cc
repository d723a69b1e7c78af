#include "cli/config_arguments.h"

#include <algorithm>
#include <array>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/mesh.h"
#include "canzona/report/terminal_style.h"
#include "canzona/shapes/read_model.h"
#include "canzona/train/config_keys.h"
#include "canzona/train/model_settings.h"
#include "canzona/train/settings.h"
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

// What --set, the flags and --rule-option give; the last one of a key wins.
Settings command_line_settings(const ConfigArguments& arguments) {
  Settings asked;
  for (const std::string& text : arguments.set)
    asked.push_back(parse_setting(text, "--set"));
  for (const ConfigFlag& flag : kFlags)
    if (const std::string& text = arguments.flags.at(flag.name); !text.empty())
      asked.push_back({flag.key, RawText{text}, flag.name});
  for (const std::string& text : arguments.rule_options) {
    Setting option = parse_setting(text, "--rule-option");
    option.key = kRuleOption + option.key;
    asked.push_back(option);
  }
  return asked;
}

const Setting* last_setting(const Settings& settings, std::string_view key) {
  const Setting* last = nullptr;
  for (const Setting& setting : settings)
    if (setting.key == key) last = &setting;
  return last;
}

// Returns 0 for an empty mesh and for a malformed one, which make_config
// refuses.
int64_t ranks_of_mesh(const Setting& mesh) {
  const auto* text = std::get_if<std::string>(&mesh.value);
  try {
    return text == nullptr || text->empty() ? 0 : parse_mesh(*text).world();
  } catch (const UsageError&) {
    return 0;
  }
}

// True if the command line's number of ranks replaces this setting of the file:
// a mesh with another number of ranks than --ranks, unless there is a --mesh,
// and `ranks` where there is a --mesh.
bool gives_way(const Setting& of_file, const Settings& asked) {
  const Setting* mesh = last_setting(asked, "mesh");
  const Setting* ranks = last_setting(asked, "ranks");
  if (of_file.key == "ranks")
    return mesh != nullptr && !std::get<RawText>(mesh->value).text.empty();
  if (of_file.key != "mesh" || mesh != nullptr || ranks == nullptr)
    return false;
  const std::string& count = std::get<RawText>(ranks->value).text;
  const int64_t there = ranks_of_mesh(of_file);
  return there != 0 && count != "0" && count != cat(there);
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
  const Settings asked = command_line_settings(arguments);
  if (!arguments.file.empty())
    for (Setting& setting : read_config_file(arguments.file))
      if (!gives_way(setting, asked)) given.push_back(std::move(setting));
  given.insert(given.end(), asked.begin(), asked.end());
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

#include "cli/config.h"

#include <algorithm>
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/measure/train_plan.h"
#include "canzona/plan/mesh.h"
#include "canzona/report/terminal.h"
#include "canzona/shapes/read_model.h"
#include "canzona/train/config_keys.h"
#include "canzona/train/model_settings.h"
#include "canzona/train/model_source.h"
#include "canzona/train/settings.h"
#include "cli/plan_input.h"
#include "cli/precision.h"
#include "cli/run_model.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kKeysGroup = "Any setting (see canzona config show)";

std::string description(const ConfigKey& key) {
  std::string out = key.help;
  if (!key.words.empty() && !key.names_words)
    out += ": " + join(key.words, ", ");
  const std::string value = key.text();
  return value.empty() || value == "0" ? out : cat(out, " [", value, "]");
}

// A model is not a preset, but its name is easily mistaken for one.
void refuse_model_as_preset(const std::string& name) {
  for (const PresetInfo& model : presets())
    if (model.name == name)
      throw UsageError(cat("--preset ", quoted(name), ": expected ",
                           join(preset_names(), ", "), "; it is a model: try ",
                           "--model ", name));
}

OptionRow key_option(const ConfigKey& key, std::string& value) {
  const KeyOption& by = key.option;
  const char* name = by.name.c_str();
  OptionRow row =
      by.label.empty()
          ? flag(name, value, key.help)
          : option(name, value, by.label.c_str(), description(key))
                .offering(key.offered.empty() ? key.words : key.offered);
  row.group = heading(by.group);
  return row;
}

OptionRow model_option(ConfigArguments& arguments) {
  OptionRow row = option(
      "--model", arguments.model, "MODEL",
      "the architecture: a config.json of Qwen3, Qwen3-MoE or Llama 3, "
      "a folder with one, or a name listed by canzona models; the preset sets "
      "the rest");
  row.group = heading(OptionGroup::kWhat);
  return row;
}

// Collects the settings of --set, the flags and --rule-option; the last one of
// a key wins.
Settings command_line_settings(const ConfigArguments& arguments) {
  Settings asked;
  for (const std::string& text : arguments.set)
    asked.push_back(parse_setting(text, "--set"));
  TrainConfig defaults;
  for (const ConfigKey& key : keys_with_options(defaults)) {
    const std::string& name = key.option.name;
    if (const std::string& text = arguments.flags.at(name); !text.empty())
      asked.push_back({key.name, RawText{text}, name});
  }
  for (const auto& [name, value] : parse_rule_options(arguments.rule_options))
    asked.push_back({kRuleOption + name, RawText{value}, "--rule-option"});
  return asked;
}

const Setting* last_setting(const Settings& settings, std::string_view key) {
  const Setting* last = nullptr;
  for (const Setting& setting : settings)
    if (setting.key == key) last = &setting;
  return last;
}

// Returns "" for anything that is neither a text nor a word of the command
// line.
std::string text_of_setting(const Setting& setting) {
  if (const auto* raw = std::get_if<RawText>(&setting.value)) return raw->text;
  if (const auto* number = std::get_if<int64_t>(&setting.value))
    return cat(*number);
  const auto* text = std::get_if<std::string>(&setting.value);
  return text == nullptr ? "" : *text;
}

// Returns 0 for an empty mesh and for a malformed one, which make_config
// refuses.
int64_t ranks_of_mesh(const Setting& mesh) {
  const std::string text = text_of_setting(mesh);
  try {
    return text.empty() ? 0 : parse_mesh(text).world();
  } catch (const UsageError&) {
    return 0;
  }
}

// True if the number of ranks that is given later replaces this setting: a mesh
// with another number of ranks than `ranks`, unless a mesh is given; and
// `ranks` if a mesh is given.
bool gives_way(const Setting& setting, const Settings& asked) {
  const Setting* mesh = last_setting(asked, "mesh");
  const Setting* ranks = last_setting(asked, "ranks");
  if (setting.key == "ranks")
    return mesh != nullptr && !text_of_setting(*mesh).empty();
  if (setting.key != "mesh" || mesh != nullptr || ranks == nullptr)
    return false;
  const std::string count = text_of_setting(*ranks);
  const int64_t there = ranks_of_mesh(setting);
  return there != 0 && count != "0" && count != cat(there);
}

// Returns where the initial weights of the run are; "" without any.
std::string initial_path(const Settings& of_file, const Settings& asked) {
  const Setting* init = last_setting(asked, "init");
  if (init == nullptr) init = last_setting(of_file, "init");
  return init == nullptr ? "" : text_of_setting(*init);
}

// Text is encoded as it was for the initial weights.
Settings initial_tokenizer(const std::string& init) {
  const std::string file = init.empty() ? "" : tokenizer_beside(init);
  if (file.empty()) return {};
  return {{"data.tokenizer", file, cat("--init ", init)}};
}

// The user's settings, from --model or --init to the flags, and what the
// weights of --init imply.
struct AskedSettings {
  Settings all;
  Settings initial;
};

// A run that has its own weights ignores those of --init.
AskedSettings asked_settings(const ConfigArguments& arguments,
                             bool has_weights) {
  const Settings asked = command_line_settings(arguments);
  Settings of_file;
  if (!arguments.file.empty()) of_file = read_config_file(arguments.file);
  const std::string init = has_weights ? "" : initial_path(of_file, asked);
  const Settings initial = init.empty()
                               ? Settings()
                               : find_model(init, WeightCheck::kFiles).settings;
  if (!initial.empty() && !arguments.model.empty())
    throw UsageError(
        cat("--model ", arguments.model,
            ": --init already determines the model; leave out --model"));
  Settings given =
      arguments.model.empty() ? initial : model_settings(arguments.model);
  for (const Setting& tokenizer : initial_tokenizer(init))
    given.push_back(tokenizer);
  for (Setting& setting : of_file)
    if (!gives_way(setting, asked)) given.push_back(std::move(setting));
  given.insert(given.end(), asked.begin(), asked.end());
  return {given, initial};
}

// A saved mesh gives way to a different number of launched ranks, options of a
// rule to another rule (which is refused as such).
Settings under(const ConfigBase& base, const Settings& given) {
  Settings asked = given;
  if (base.launched > 0)
    asked.insert(asked.begin(), {"ranks", base.launched, "launched"});
  const Setting* rule = last_setting(given, "rule.name");
  const Setting* saved_rule = last_setting(base.saved, "rule.name");
  const bool other_rule =
      rule != nullptr && saved_rule != nullptr &&
      text_of_setting(*rule) != text_of_setting(*saved_rule);
  Settings out;
  for (const Setting& setting : base.saved) {
    const bool is_option = setting.key.starts_with(kRuleOption);
    if (!gives_way(setting, asked) && !(other_rule && is_option))
      out.push_back(setting);
  }
  return out;
}

}  // namespace

OptionRows config_options(ConfigArguments& arguments) {
  TrainConfig defaults;
  OptionRows rows;
  for (const ConfigKey& key : keys_with_options(defaults)) {
    rows.push_back(key_option(key, arguments.flags[key.option.name]));
    if (key.name == "preset") rows.push_back(model_option(arguments));
  }
  const std::string what = heading(OptionGroup::kWhat);
  return joined(
      {rows,
       in_group(what.c_str(),
                {option("--rule-option", arguments.rule_options, "NAME=VALUE",
                        "an option of the rule (see canzona rules RULE); "
                        "repeatable")}),
       in_group(kKeysGroup,
                {option("--config", arguments.file, "FILE",
                        "a TOML or JSON file of keys and values, or the "
                        "summary.json of a run to repeat"),
                 option("--set", arguments.set, "KEY=VALUE",
                        "a key of the configuration; repeatable, the last one "
                        "wins")})});
}

TrainConfig read_config(const ConfigArguments& arguments,
                        const ConfigBase& base) {
  refuse_model_as_preset(arguments.flags.at("--preset"));
  const auto [given, initial] = asked_settings(arguments, base.has_weights);
  Settings all = under(base, given);
  all.insert(all.end(), given.begin(), given.end());
  TrainConfig config = make_settled_config(std::move(all));
  refuse_contradictions(config, initial);
  link_of(config);  // throws
  return config;
}

std::string why_untrained(const std::string& model) {
  try {
    model_settings(model);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

std::string asked_run_folder(const ConfigArguments& arguments) {
  const Settings given = asked_settings(arguments, true).all;
  const Setting* run = last_setting(given, "run");
  return run == nullptr ? "" : text_of_setting(*run);
}

std::string train_presets_help() {
  constexpr size_t kColumn = 16;
  std::string out = "Presets:\n";
  for (const std::string& name : preset_names())
    out += "  " + pad_right(name, kColumn) + preset_summary(name) + "\n";
  return out;
}

// `canzona config show`: the settings of a run, and where they come from.
// `canzona config keys`: all keys.
namespace {

constexpr const char* kConfigExamples =
    R"(Examples:
  canzona config show
  canzona config show --preset small --rule soap
  canzona config show --config run.toml --set batch.micro=4 --steps 50
  canzona config show --config run.toml --json
  canzona config keys --json

A configuration is built in layers; a later one overrides an earlier one:
  default, preset, file (--config), --set KEY=VALUE, flags such as --steps
The third column shows which layer set the value.

A file in TOML, and the same in JSON:
  steps = 400                         {"steps": 400,
  [model]                              "model": {"layers": 8},
  layers = 8                           "rule": {"name": "soap",
  [rule]                                        "option": {"precondition_frequency": 5}}}
  name = "soap"
  option.precondition_frequency = 5

Unknown keys are errors; the message names the nearest known key.
)";

constexpr const char* kKeysExamples =
    R"(Examples:
  canzona config keys
  canzona config keys --json

Columns: the option that sets the key, the value without a preset's, what is allowed, and whether a
run that goes on from a checkpoint may change it. In JSON there are no options, and `default` is
null where the preset decides.
)";

struct ConfigFlags {
  ConfigArguments config;
  bool json = false;
};

std::string as_json(const TrainConfig& config) {
  JsonWriter out(2);
  out.begin_object().member("config");
  write_config(out, config);
  out.member("origins").begin_object();
  for (const ConfigRow& row : config_rows(config))
    out.field(row.key, row.origin);
  out.end_object().end_object();
  return out.take() + "\n";
}

// Pads a cell to its column, or ends the line if it is too wide.
std::string cell(const std::string& text, size_t from, size_t width) {
  return display_width(text) < width
             ? pad_right(text, width)
             : text + "\n" + std::string(from + width, ' ');
}

std::string as_text(const TrainConfig& config, const Ink& ink) {
  constexpr size_t kKey = 35, kValue = 14, kOrigin = 21;
  constexpr size_t kHelp = kKey + kValue + kOrigin;
  std::string out =
      ink(Tone::kBold, pad_right("key", kKey) + pad_right("value", kValue) +
                           pad_right("from", kOrigin) + "what it is") +
      "\n";
  for (const ConfigRow& row : config_rows(config)) {
    const std::string value = row.value.empty() ? "-" : printable(row.value);
    const bool set = row.origin.find("default") == std::string::npos &&
                     row.origin.find("own") == std::string::npos;
    out += pad_right(row.key, kKey) +
           ink(set ? Tone::kAccent : Tone::kPlain, cell(value, kKey, kValue)) +
           cell(printable(row.origin), kKey + kValue, kOrigin) +
           ink(Tone::kDim, wrap(row.help, kPageWidth - kHelp, kHelp)) + "\n";
  }
  return out;
}

Verb add_show(CLI::App& config) {
  auto arguments = std::make_shared<ConfigFlags>();
  return add_verb(
      config,
      {.name = "show",
       .description = "show the value of every key and where it comes from",
       .options = joined(
           {config_options(arguments->config), {json_flag(arguments->json)}}),
       .footer = cat(kConfigExamples, "\n", train_presets_help()),
       .run = [arguments](const Output& out) {
         const TrainConfig read = read_config(arguments->config);
         out.result(arguments->json ? as_json(read) : as_text(read, out.ink()));
         return Outcome::kDone;
       }});
}

Verb add_keys(CLI::App& config) {
  auto json = std::make_shared<bool>(false);
  return add_verb(
      config,
      {.name = "keys",
       .description =
           "list all keys with their allowed values, as a Markdown table",
       .options = {json_flag(*json)},
       .footer = kKeysExamples,
       .run = [json](const Output& out) {
         out.result(*json ? config_keys_json() : config_markdown());
         return Outcome::kDone;
       }});
}

}  // namespace

Verb add_config(CLI::App& root) {
  return add_verb(
      root, {.name = "config",
             .description =
                 "show the settings of canzona train and where each comes from",
             .footer = kConfigExamples,
             .below = {add_show, add_keys},
             .run = [](const Output&) -> Outcome {
               throw UsageError("canzona config: expected show or keys");
             }});
}

}  // namespace canzona::cli

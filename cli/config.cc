// `canzona config show`: what a run would be asked to do, and why.
// `canzona config keys`: the keys there are.
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/train/config_keys.h"
#include "cli/config_arguments.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kConfigExamples =
    R"(Examples:
  canzona config show
  canzona config show --preset small --rule soap
  canzona config show --config run.toml --set batch.micro=4 --steps 50
  canzona config show --config run.toml --json
  canzona config keys

A configuration is built in layers; a later one overrides an earlier one:
  default, preset, file (--config), --set KEY=VALUE, flags such as --steps
The third column says which of them gave the value.

A file in TOML, and the same in JSON:
  steps = 400                         {"steps": 400,
  [model]                              "model": {"layers": 8},
  layers = 8                           "rule": {"name": "soap",
  [rule]                                        "option": {"max_dim": 4096}}}
  name = "soap"
  option.max_dim = 4096

Keys that are not known are refused, and the nearest known one is named.
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

// A cell that ends its column, or the line where it is too wide for it.
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
  CLI::App* app = config.add_subcommand(
      "show", "the value of every key, and where it came from");
  auto arguments = std::make_shared<ConfigFlags>();
  add_config_arguments(*app, arguments->config);
  app->add_flag("--json", arguments->json,
                "print one JSON object instead of text");
  app->footer(kConfigExamples + std::string("\n") + train_presets_help());
  return {
      app, [arguments](const Output& out) {
        const TrainConfig read = read_config(arguments->config);
        out.result(arguments->json ? as_json(read) : as_text(read, out.ink()));
        return Outcome::kDone;
      }};
}

}  // namespace

Verb add_config(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "config", "show what canzona train is asked to do, and why");
  const Verb show = add_show(*app);
  CLI::App* keys = app->add_subcommand(
      "keys", "all keys with what they allow, as a table in Markdown");
  app->footer(kConfigExamples);
  return {app, [show, keys](const Output& out) {
            if (show.app->parsed()) return show.run(out);
            if (!keys->parsed())
              throw UsageError("canzona config: expected show or keys");
            out.result(config_markdown());
            return Outcome::kDone;
          }};
}

}  // namespace canzona::cli

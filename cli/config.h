// Puts the configuration of a training run together.
#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "canzona/train/config.h"

namespace canzona::cli {

// The options that `train` and `config show` share: where a configuration
// comes from.
//
//   auto arguments = std::make_shared<ConfigArguments>();
//   add_config_arguments(*app, *arguments);
//   TrainConfig config = read_config(*arguments);   // UsageError

struct ConfigArguments {
  std::string file;
  std::string model;                      // "": the preset's
  std::vector<std::string> set;           // key=value
  std::vector<std::string> rule_options;  // name=value
  // By flag ("--steps"): what was given, "" if nothing was.
  std::map<std::string, std::string> flags;
};

// `arguments` outlives the app.
void add_config_arguments(CLI::App& app, ConfigArguments& arguments);

// A run that goes on from a checkpoint begins with this.
struct ConfigBase {
  Settings saved = {};
  bool has_weights = false;  // of a checkpoint: --init is not looked at
  int64_t launched = 0;      // ranks that a launcher has started; 0: none
};

// Defaults < preset < what was saved < --model < file < --set < flags. Settings
// left to `auto` that this machine decides are settled.
TrainConfig read_config(const ConfigArguments& arguments,
                        const ConfigBase& base = {});

// The folder that is asked for, without making a configuration; "": none.
std::string asked_run_folder(const ConfigArguments& arguments);

// "Presets:" with a line each, for the end of a help page.
std::string train_presets_help();

}  // namespace canzona::cli

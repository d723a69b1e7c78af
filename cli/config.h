// Assembles the configuration of a training run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "canzona/train/config.h"
#include "cli/options.h"

namespace canzona::cli {

// The options that `train` and `config show` share: the sources of a
// configuration.
//
//   auto arguments = std::make_shared<ConfigArguments>();
//   declare(*app, config_options(*arguments));
//   TrainConfig config = read_config(*arguments);   // UsageError

struct ConfigArguments {
  std::string file;
  std::string model;                      // "": the preset's
  std::vector<std::string> set;           // key=value
  std::vector<std::string> rule_options;  // name=value
  // By flag ("--steps"): its value, "" if it was not given.
  std::map<std::string, std::string> flags;
};

OptionRows config_options(ConfigArguments& arguments);

// What a resumed run begins with.
struct ConfigBase {
  Settings saved = {};
  bool has_weights = false;  // from a checkpoint: --init is ignored
  int64_t launched = 0;      // ranks started by a launcher; 0: none
};

// Applies defaults < preset < saved < --model < file < --set < flags. Settings
// of `auto` that depend on this machine are resolved.
TrainConfig read_config(const ConfigArguments& arguments,
                        const ConfigBase& base = {});

// Returns the requested folder without making a configuration; "" if there is
// none.
std::string asked_run_folder(const ConfigArguments& arguments);

// "Presets:" with a line each, for the end of a help page.
std::string train_presets_help();

}  // namespace canzona::cli

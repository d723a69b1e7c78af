// Values of keys from a file or the command line, with their origin.
//
//   Settings all = read_config_file("run.toml");   // origins "run.toml:7"
//   all.push_back(parse_setting("rule.name=soap", "--set"));
//
// Files are untrusted: their size is bounded, and UsageError names the file and
// line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace canzona::train {

// A word of the command line; the key determines its type.
struct RawText {
  std::string text;
};
using SettingValue = std::variant<RawText, bool, int64_t, double, std::string>;

struct Setting {
  std::string key;  // "model.layers"
  SettingValue value;
  std::string origin;  // "run.toml:7", "--set"
};
using Settings = std::vector<Setting>;

// Parses "key=value".
Setting parse_setting(std::string_view text, const std::string& origin);

// Reads TOML or JSON, by the file's extension, otherwise JSON if it begins with
// '{'.
Settings read_config_file(const std::string& path);

// If the object has a member "config", as the summary of a run does, takes only
// that: the run's settings, without its folder and the number of ranks, which
// the mesh has.
Settings json_settings(std::string_view text, const std::string& file);
// Throws UsageError if the program was built without a TOML parser.
Settings toml_settings(std::string_view text, const std::string& file);

// "the number 3", "the text 'x'", for messages.
std::string describe(const SettingValue& value);

// Presets of training runs: values under a name.
//
//   tiny       a minute on two cores
//   small      about 9M parameters, for comparisons of rules
//   moe-tiny   tiny with experts

std::vector<std::string> preset_names();
std::string preset_summary(const std::string& preset);

// Returns the preset's values, with origin "preset tiny", then the rule's
// learning rate: what it is tuned to in this preset, otherwise its default.
// UsageError names an unknown preset and the nearest one.
Settings preset_settings(const std::string& preset, const std::string& rule);

}  // namespace canzona::train

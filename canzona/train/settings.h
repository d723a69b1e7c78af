// Values of keys as a file or the command line gives them, with their origin.
//
//   Settings all = read_config_file("run.toml");   // origins "run.toml:7"
//   all.push_back(parse_setting("rule.name=soap", "--set"));
//
// Files are untrusted: they are bounded, and UsageError names file and place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace canzona {

// A word of the command line: the key says what it is read as.
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

// "key=value".
Setting parse_setting(std::string_view text, const std::string& origin);

// TOML or JSON, by the name's ending, else by a '{' at its beginning.
Settings read_config_file(const std::string& path);

// Takes only the member "config" of an object that has one, such as the summary
// of a run: what the run did, but for the folder that it left its files in and
// the count of ranks, which the mesh has.
Settings json_settings(std::string_view text, const std::string& file);
// UsageError where the program was built without a TOML parser.
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

// The preset's values, then those it has for a rule; origin "preset tiny".
// UsageError names an unknown preset and the nearest.
Settings preset_settings(const std::string& preset, const std::string& rule);

}  // namespace canzona

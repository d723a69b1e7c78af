// The keys of a configuration, one line each in config_keys.cc: name, type,
// default, bounds, words, help, what a resumed run may change, and the option
// of the command line that sets the key. That line is the only declaration;
// files, options, `canzona config`, completion and docs/config.md are made from
// it. Keys of the planner's options are rows of plan/option_table.h.
//
//   for (const ConfigKey& key : config_keys(config))
//     std::cout << key.name << " = " << key.text() << "\n";
//
// A ConfigKey points into the configuration it was made for.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "canzona/train/config.h"

namespace canzona::train {

// Says whether a resumed run may have a different value than its checkpoint.
// kUndecided: the key's author forgot to say, which a test refuses.
enum class OnResume { kUndecided, kMayChange, kStays };
std::string to_string(OnResume answer);  // "may change"

// The groups in which help lists the options that set keys, in this order.
enum class OptionGroup { kWhat, kSaving, kRanks, kMemory };
std::string heading(OptionGroup group);  // "What is trained"

// The option of the command line that sets a key. Keys without one are set by
// --set KEY=VALUE.
struct KeyOption {
  std::string name = {};   // "--steps"; "": there is none
  std::string label = {};  // of its value, "N"; "": it is a switch
  OptionGroup group = OptionGroup::kWhat;
  int place = 0;  // in its group; help does not list keys in their own order
};

struct ConfigKey {
  std::string name;  // "model.layers"
  std::variant<int64_t*, double*, bool*, std::string*> value;
  std::string help;
  double low = 0;  // for numbers
  double high = 0;
  // The words allowed for a text; if empty, any text, or, with bounds, numbers
  // as well. For integers, the names of low, low + 1, …; plain numbers begin
  // after them.
  std::vector<std::string> words = {};
  std::vector<std::string> offered = {};  // by completion; if empty, the words
  bool names_words = false;               // the help names them itself
  OnResume on_resume = OnResume::kUndecided;
  bool below_high = false;  // for numbers: `high` itself is excluded
  KeyOption option = {};

  std::string text() const;     // the value: "4", "0.003", "on", "muon"
  bool is_word() const;         // the value is one of the words
  bool is_number_text() const;  // a text that may be a whole number
  std::string allowed() const;  // "1 to 1000", "on or off", "fp32 or bf16"
  // UsageError names the key, the origin, what was expected and what came.
  void set(const Setting& setting) const;
};

std::vector<ConfigKey> config_keys(TrainConfig& config);

// The keys that have options, in the order of the help.
std::vector<ConfigKey> keys_with_options(TrainConfig& config);

// Requires a key of this name.
const ConfigKey& find_key(const std::vector<ConfigKey>& keys,
                          std::string_view name);

// Keys of the rule's options: "rule.option.steps".
inline constexpr const char* kRuleOption = "rule.option.";

// Every key with its effective value, including the rule's options.
struct ConfigRow {
  std::string key;
  std::string value;
  std::string origin;
  std::string help;
};
std::vector<ConfigRow> config_rows(const TrainConfig& config);

// Return all keys with what they allow: the table of docs/config.md, which has
// their options as well, and one JSON object.
std::string config_markdown();
std::string config_keys_json();

// Returns a number as text that reads back equal: 0.0003, 400000000, 1e-08.
inline std::string number_text(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  return std::string(text, end);
}

}  // namespace canzona::train

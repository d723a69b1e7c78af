// The keys of a configuration, one line each in config_keys.cc: the only place
// that lists them.
//
//   for (const ConfigKey& key : config_keys(config))
//     std::cout << key.name << " = " << key.text() << "\n";
//
// A key points into the configuration it was made for.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "canzona/train/config.h"

namespace canzona {

// Says whether a run that goes on from a checkpoint may have another value than
// the checkpoint. kUndecided: nobody has thought about it, which a test
// refuses.
enum class OnResume { kUndecided, kMayChange, kStays };
std::string to_string(OnResume answer);  // "may change"

struct ConfigKey {
  std::string name;  // "model.layers"
  std::variant<int64_t*, double*, bool*, std::string*> value;
  std::string help;
  double low = 0;  // of numbers
  double high = 0;
  // The words that a text may be; none: any. For whole numbers: the names of
  // low, low + 1, …; numbers begin after them.
  std::vector<std::string> words = {};
  OnResume on_resume = OnResume::kUndecided;
  bool below_high = false;  // of numbers: `high` itself is not allowed

  std::string text() const;     // the value: "4", "0.003", "on", "muon"
  bool is_word() const;         // the value is one of the words
  std::string allowed() const;  // "1 to 1000", "on or off", "fp32 or bf16"
  // UsageError names key, origin, what was expected and what came.
  void set(const Setting& setting) const;
};

std::vector<ConfigKey> config_keys(TrainConfig& config);

// Keys of the rule's options: "rule.option.steps".
inline constexpr const char* kRuleOption = "rule.option.";

// Every key with its value in force, the rule's options among them.
struct ConfigRow {
  std::string key;
  std::string value;
  std::string origin;
  std::string help;
};
std::vector<ConfigRow> config_rows(const TrainConfig& config);

// All keys with what they allow: a table for docs/config.md, and one JSON
// object.
std::string config_markdown();
std::string config_keys_json();

// Numbers as text that reads back equal: 0.0003, 400000000, 1e-08.

inline std::string number_text(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  return std::string(text, end);
}

}  // namespace canzona

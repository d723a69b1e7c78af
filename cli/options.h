// The options of verbs, each declared once, in its verb's table: name, type,
// default, range or words, help and group. The command line, --help, the manual
// page, completion and the checks of values are made from that row.
//
//   OptionRows options_of(Flags& a) {
//     return {argument("PLAN", a.path, "a file that `canzona plan -o` wrote"),
//             option("--rounds", a.rounds, "N", "rounds to time; the fastest
//             counts")
//                 .between(1, 1000),
//             option("--wire", a.wire, "DTYPE", "of gradients")
//                 .one_of({"fp32", "bf16"}),
//             number("--alpha", a.alpha, 0, 1, "A", "how freely bytes may lie")
//                 .by_default("the strategy's"),
//             flag("--audit", a.audit, "every tensor"), json_flag(a.json)};
//   }
//
// Options that set a key of the training configuration are declared with the
// key (canzona/train/config_keys.h), the planner's in the table of
// canzona/plan/option_table.h. A row points to the value that it sets,
// which must outlive the command line; what the value is at the declaration is
// the default that help shows.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace canzona::cli {

// Where the value of an option goes.
using OptionValue =
    std::variant<bool*, int*, int64_t*, double*, std::optional<int64_t>*,
                 std::optional<double>*, std::string*,
                 std::vector<std::string>*>;

struct OptionRow {
  // "--steps", "-o,--output"; without dashes, the name of a plain argument.
  std::string name;
  OptionValue value;
  std::string label;  // of the value in the help, "N"; see offer_of()
  std::string help;   // without words and default
  std::string group = "Options";        // its heading in the help
  std::vector<std::string> words = {};  // that completion offers
  // What help shows as the default in place of the value's text.
  std::optional<std::string> shown_default = {};
  std::optional<std::pair<double, double>> range = {};
  // For numbers that are read as text, so that a message can name the range.
  std::shared_ptr<std::string> text = {};
  bool is_switch = false;
  bool is_required = false;
  bool lists_words = false;  // help lists the words
  bool is_strict = false;    // other words are refused

  OptionRow between(double low, double high) &&;
  OptionRow at_least(double low) &&;
  // The words are offered by completion, and with one_of() listed by the help;
  // with only() others are refused as well.
  OptionRow offering(std::vector<std::string> all) &&;
  OptionRow one_of(std::vector<std::string> all) &&;
  OptionRow only(std::vector<std::string> all) &&;
  OptionRow by_default(std::string shown) &&;
  OptionRow required() &&;

  bool is_argument() const { return !name.starts_with('-'); }
  // The help with words and default: "of gradients: fp32 or bf16 [fp32]".
  std::string full_help() const;
};
using OptionRows = std::vector<OptionRow>;

template <class Value>
OptionRow option(const char* name, Value& value, const char* label,
                 std::string help) {
  return {name, &value, label, std::move(help)};
}

// A number from low to high; nothing if it is not given.
template <class Number>
OptionRow number(const char* name, std::optional<Number>& value, double low,
                 double high, const char* label, std::string help) {
  OptionRow row{name, &value, label, std::move(help)};
  row.text = std::make_shared<std::string>();
  return std::move(row).between(low, high);
}

template <class Value>
OptionRow argument(const char* name, Value& value, std::string help) {
  return {name, &value, "", std::move(help)};
}

// A switch; a text becomes "true".
template <class Value>
OptionRow flag(const char* name, Value& value, std::string help) {
  OptionRow row{name, &value, "", std::move(help)};
  row.is_switch = true;
  return row;
}

OptionRow json_flag(bool& json);
// --device cpu or cuda; others are refused.
OptionRow device_option(std::string& device, std::string help);

OptionRows in_group(const char* heading, OptionRows rows);
OptionRows joined(std::vector<OptionRows> parts);

// Adds the options to a verb.
void declare(CLI::App& app, const OptionRows& rows);

// Reads numbers and checks ranges and words; UsageError names the option. Call
// it when the command line was parsed.
void settle(const OptionRows& rows);

// "fp32", "fp32 or bf16", "auto, always or never"; there must be one.
std::string alternatives(const std::vector<std::string>& words);

// An Offer has the shell completions of an option's value.
struct Offer {
  std::vector<std::string> words = {};
  bool files = false;
  bool folders = false;
};

// Returns the words that the option was declared with, and those implied by the
// label of its value: a MODEL is a preset or a file, a RULE one of the rules, a
// DEVICE cpu or cuda, a FILE, PLAN or PATH a file, a DIR, FOLDER, RUN or SECOND
// a folder.
Offer offer_of(const CLI::Option& option);

}  // namespace canzona::cli

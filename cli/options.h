// Options of verbs, and the completions of their values.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace canzona::cli {

// An Offer has the shell completions of an option's value. It is stored in the
// option itself, so that the tree of options is the only list.
//
//   offer_words(app.add_option("--wire", wire, "…"), {"fp32", "bf16"});
//   Offer offer = offer_of(*option);

struct Offer {
  std::vector<std::string> words = {};
  bool files = false;
  bool folders = false;
};

// Returns the option.
CLI::Option* offer_words(CLI::Option* option,
                         const std::vector<std::string>& words);

// Adds an option with a value, shown as `label` in the help. Returns the
// option.
template <class Value>
CLI::Option* add_value(CLI::App& app, const char* name, Value& value,
                       const char* label, const char* description) {
  return app.add_option(name, value, description)->option_text(label);
}

// Makes every numeric option of this verb and its subcommands refuse, by name,
// text that is not a number or is out of range. (The library itself takes the
// nearest number, and 010 as 8.) Call it once, when all options are added.
void require_numbers(CLI::App& app);

inline constexpr const char* kJsonHelp =
    "print one JSON object instead of text";

// Returns the words that the option was given, and those implied by the label
// of its value: a MODEL is a preset or a file, a RULE one of the rules, a
// DEVICE cpu or cuda, a FILE, PLAN or PATH a file, a DIR or RUN a folder.
Offer offer_of(const CLI::Option& option);

}  // namespace canzona::cli

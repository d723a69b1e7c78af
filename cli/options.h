// Options of verbs, and what shells are offered for their values.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace canzona::cli {

// An Offer is what a shell may complete the value of an option to. It is kept
// in the option itself, so that the tree of options is the only list there is.
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

// An option with a value, `label` in the help. Returns the option.
template <class Value>
CLI::Option* add_value(CLI::App& app, const char* name, Value& value,
                       const char* label, const char* description) {
  return app.add_option(name, value, description)->option_text(label);
}

// Makes every option of this verb and of those below it that takes a number
// refuse what is none or beyond its type, by name. (The library itself takes
// the nearest number there is, and 010 for 8.) Called once, when all options
// are there.
void require_numbers(CLI::App& app);

inline constexpr const char* kJsonHelp =
    "print one JSON object instead of text";

// The words that were given to it, and what the label of its value says: a
// MODEL is a preset or a file, a RULE one of the rules, a DEVICE cpu or cuda, a
// FILE, PLAN or PATH a file, a DIR or RUN a folder.
Offer offer_of(const CLI::Option& option);

}  // namespace canzona::cli

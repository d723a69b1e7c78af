// The words of a benchmark's command line: "--name value", and switches.
//
//   Arguments words(argc, argv);
//   const std::string model = words.value("--model", "qwen3-0.6b");
//   const bool json = words.has("--json");
//   words.require_no_more();   // UsageError names what is left
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/facts.h"

namespace canzona::bench {

class Arguments {
 public:
  Arguments(int argc, char** argv) : words_(argv + 1, argv + argc) {}

  bool has(const std::string& name) {
    const auto found = std::ranges::find(words_, name);
    if (found == words_.end()) return false;
    words_.erase(found);
    return true;
  }

  std::string value(const std::string& name, std::string otherwise) {
    const auto found = std::ranges::find(words_, name);
    if (found == words_.end()) return otherwise;
    if (found + 1 == words_.end())
      throw UsageError(cat(name, ": expected a value after it"));
    otherwise = *(found + 1);
    words_.erase(found, found + 2);
    return otherwise;
  }

  int count(const std::string& name, int otherwise) {
    constexpr int kMost = 1'000'000;
    return static_cast<int>(
        parse_integer(value(name, cat(otherwise)), 1, kMost, name));
  }

  // Every "--rule-option NAME=VALUE".
  RuleOptions rule_options() {
    RuleOptions options;
    for (std::string text = value("--rule-option", ""); !text.empty();
         text = value("--rule-option", "")) {
      const size_t equals = std::min(text.find('='), text.size() - 1);
      options[text.substr(0, equals)] = text.substr(equals + 1);
    }
    return options;
  }

  void require_no_more() const {
    if (!words_.empty())
      throw UsageError(cat("unexpected word ", quoted(words_.front())));
  }

 private:
  std::vector<std::string> words_;
};

}  // namespace canzona::bench

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/facts.h"

namespace canzona {

#define CANZONA_RULE(rule) RuleEntry rule##_entry();
#include "canzona/rules/rules.def"
#undef CANZONA_RULE

const std::vector<RuleEntry>& rule_table() {
  static const std::vector<RuleEntry> table = {
#define CANZONA_RULE(rule) rule##_entry(),
#include "canzona/rules/rules.def"
#undef CANZONA_RULE
  };
  return table;
}

RuleOptions with_device(std::string_view rule, RuleOptions options,
                        std::string_view device) {
  for (const RuleEntry& entry : rule_table()) {
    if (entry.name != rule) continue;
    for (const OptionFact& fact : entry.options)
      if (fact.name == "device") options.try_emplace("device", device);
  }
  return options;
}

std::unique_ptr<RuleFacts> make_rule_facts(std::string_view rule,
                                           const RuleOptions& options) {
  std::vector<std::string> names;
  for (const RuleEntry& entry : rule_table()) {
    if (entry.name == rule) return entry.make(options);
    names.push_back(entry.name);
  }
  throw UsageError(cat("unknown rule ", quoted(rule), did_you_mean(rule, names),
                       "; rules are ", join(names, ", ")));
}

}  // namespace canzona

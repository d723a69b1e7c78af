#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/adamw/facts.h"
#include "canzona/rules/facts.h"
#include "canzona/rules/muon/facts.h"
#include "canzona/rules/shampoo/facts.h"
#include "canzona/rules/soap/facts.h"

namespace canzona {

const std::vector<RuleEntry>& rule_table() {
  static const std::vector<RuleEntry> table = {
      muon_entry(),
      shampoo_entry(),
      soap_entry(),
      adamw_entry(),
  };
  return table;
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

// Reading a rule's options. An OptionFact's `allowed` text is not only shown to
// the user, it is the check: words and ranges of whole numbers between bars,
// as in "fp16|bf16|fp32", "1..20" or "auto|0..19".
//
//   RuleOptions options = options_in_force("muon", known, given);
//   int64_t steps = integer_option(options, "steps");
//
// All functions are pure and may be called from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/rules/facts.h"

namespace canzona {

// Every known option, with the given value or else its default; numbers in
// their shortest form. UsageError names the rule, an unknown option or a value
// that is not allowed, what is allowed and the nearest known word.
RuleOptions options_in_force(std::string_view rule,
                             const std::vector<OptionFact>& known,
                             const RuleOptions& given);

// An option in force that is a number.
int64_t integer_option(const RuleOptions& options, const std::string& name);

// The bound that one option sets another: UsageError unless the number `name`
// is at most `limit`. `limit_text` says where that comes from: "steps-1".
void require_at_most(std::string_view rule, const RuleOptions& options,
                     const std::string& name, int64_t limit,
                     std::string_view limit_text);

// What rules that refresh something every so many steps share.
struct RefreshOptions {
  int period = 1;
  int phases = 1;
};
std::vector<OptionFact> refresh_option_facts(const std::string& default_period);
RefreshOptions read_refresh(std::string_view rule, const RuleOptions& options);

}  // namespace canzona

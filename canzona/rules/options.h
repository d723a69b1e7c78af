// Reading a rule's options. An OptionFact's `allowed` text is not only shown to
// the user, it is the check: words and ranges between bars, as in
// "fp16|bf16|fp32", "1..20" or "auto|0..19". A range whose bounds have a point
// is one of real numbers ("0.0..1.0", "0.0..inf"), and "0.0..<1.0" is one
// without its upper bound; a range followed by ",..." takes one or more such
// numbers with commas between ("0,0.5"); TRIPLES stands for numbers in threes,
// as in "3.4445,-4.775,2.0315;2,-1.5,0.5".
//
//   RuleOptions options = options_in_force("muon", known, presets, given);
//   int64_t steps = integer_option(options, "steps");
//   double momentum = real_option(options, "momentum");
//
// All functions are pure and may be called from any thread.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/rules/facts.h"

namespace canzona {

// Every known option, with the given value, or else that of the preset, or
// else its default; numbers in their shortest form. A rule with presets has
// the option "preset" too, the first preset being its default. UsageError
// names the rule, an unknown option or a value that is not allowed, what is
// allowed and the nearest known word.
RuleOptions options_in_force(std::string_view rule,
                             const std::vector<OptionFact>& known,
                             const std::vector<Preset>& presets,
                             const RuleOptions& given);
inline RuleOptions options_in_force(std::string_view rule,
                                    const std::vector<OptionFact>& known,
                                    const RuleOptions& given) {
  return options_in_force(rule, known, {}, given);
}

// Options in force that are numbers, words, yes or no ("on", "off").
int64_t integer_option(const RuleOptions& options, const std::string& name);
double real_option(const RuleOptions& options, const std::string& name);
const std::string& word_option(const RuleOptions& options,
                               std::string_view name);
bool switch_option(const RuleOptions& options, const std::string& name);
// Numbers with commas between.
std::vector<double> reals_option(const RuleOptions& options,
                                 const std::string& name);
// Numbers in threes.
std::vector<std::array<double, 3>> read_triples(std::string_view text);

// The bound that one option sets another: UsageError unless the number `name`
// is at most `limit`. `limit_text` says where that comes from: "steps-1".
void require_at_most(std::string_view rule, const RuleOptions& options,
                     const std::string& name, int64_t limit,
                     std::string_view limit_text);

// Returns the options that every rule has, the learning rate at its peak and
// the weight decay with these defaults, and after that its own.
std::vector<OptionFact> with_step_size(const std::string& rate,
                                       const std::string& decay,
                                       const std::vector<OptionFact>& own);

// Options of all rules that refresh something every so many steps.
struct RefreshOptions {
  int period = 1;
  int phases = 1;
};
std::vector<OptionFact> refresh_option_facts(const std::string& default_period);
RefreshOptions read_refresh(std::string_view rule, const RuleOptions& options);

// Options of all rules whose products may be faster than plain fp32 on some
// device.
std::vector<OptionFact> product_option_facts();
// "auto" becomes what is best on the option `device`.
void choose_products(RuleOptions& options);
bool splits_products(const RuleOptions& options);

}  // namespace canzona

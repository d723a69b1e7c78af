// Reads a rule's options. An OptionFact's `allowed` text is both shown to the
// user and used as the check: words and ranges separated by bars, as in
// "fp16|bf16|fp32", "1..20" or "auto|0..19". A range whose bounds have a
// decimal point takes real numbers ("0.0..1.0", "0.0..inf"); "0.0..<1.0"
// excludes its upper bound; a range followed by ",..." takes one or more such
// numbers separated by commas ("0,0.5"); TRIPLES takes groups of three numbers,
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

namespace canzona::rules {

// Returns every known option with the given value, else that of the preset,
// else its default; numbers in their shortest form. A rule with presets also
// has the option "preset", which defaults to the first. UsageError names the
// rule, the unknown option or the value that is not allowed, what is allowed
// and the nearest known word.
RuleOptions options_in_force(std::string_view rule,
                             const std::vector<OptionFact>& known,
                             const std::vector<Preset>& presets,
                             const RuleOptions& given);
inline RuleOptions options_in_force(std::string_view rule,
                                    const std::vector<OptionFact>& known,
                                    const RuleOptions& given) {
  return options_in_force(rule, known, {}, given);
}

// Read options in force as numbers, words and switches ("on", "off").
int64_t integer_option(const RuleOptions& options, const std::string& name);
double real_option(const RuleOptions& options, const std::string& name);
const std::string& word_option(const RuleOptions& options,
                               std::string_view name);
bool switch_option(const RuleOptions& options, const std::string& name);
// Comma-separated numbers.
std::vector<double> reals_option(const RuleOptions& options,
                                 const std::string& name);
// Groups of three numbers.
std::vector<std::array<double, 3>> read_triples(std::string_view text);

// Checks the bound that one option sets on another: throws UsageError unless
// the number `name` is at most `limit`. `limit_text` says where the limit comes
// from: "steps-1".
void require_at_most(std::string_view rule, const RuleOptions& options,
                     const std::string& name, int64_t limit,
                     std::string_view limit_text);

// Returns the options that every rule has, peak learning rate and weight decay,
// with these defaults, followed by the rule's own.
std::vector<OptionFact> with_step_size(const std::string& rate,
                                       const std::string& decay,
                                       const std::vector<OptionFact>& own);

// Options of all rules that refresh something periodically.
struct RefreshOptions {
  int period = 1;
  int phases = 1;
};
std::vector<OptionFact> refresh_option_facts(const std::string& default_period);
// A period that is short enough to be measured whole.
RuleOptions short_period();
RefreshOptions read_refresh(std::string_view rule, const RuleOptions& options);

// Options of all rules whose products can be faster than plain fp32 on some
// device.
std::vector<OptionFact> product_option_facts();
// Replaces "auto" by what is best for the option `device`.
void choose_products(RuleOptions& options);
bool splits_products(const RuleOptions& options);

}  // namespace canzona::rules

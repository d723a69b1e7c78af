#include "canzona/rules/facts.h"

#include <algorithm>

#include "canzona/base/check.h"

namespace canzona {
namespace {

int64_t bytes_per_element(const std::string& dtype) {
  if (dtype == "bf16") return kBytesPerBf16;
  CANZONA_CHECK_EQ(dtype, "fp32", "dtype of a state");
  return kBytesPerFp32;
}

}  // namespace

std::string to_string(MatrixShape shape) {
  std::string text = cat(shape.rows, "x", shape.cols);
  if (shape.column_heads > 1) text += cat(" in ", shape.column_heads, " heads");
  return text;
}

int64_t StateFact::elements() const {
  // Without this, 2^40 x 2^40 x 0 would overflow on its way to nothing.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  Elements product(1);
  for (int64_t side : shape) product = product * side;
  return product.value();
}

Bytes StateFact::bytes() const {
  return Bytes(elements()) * bytes_per_element(dtype);
}

std::vector<StateFact> RuleFacts::tensor_states(
    const std::vector<int64_t>& dims) const {
  if (dims.size() < 2) return states({1, dims.empty() ? 1 : dims[0]});
  int64_t stack = 1;
  for (size_t i = 0; i + 2 < dims.size(); ++i)
    stack = checked_mul(stack, dims[i], "matrices in a tensor");
  std::vector<StateFact> all =
      states({dims[dims.size() - 2], dims[dims.size() - 1]});
  if (stack == 1) return all;
  for (StateFact& state : all) state.shape.insert(state.shape.begin(), stack);
  return all;
}

namespace rules {
#define CANZONA_RULE(rule) RuleEntry rule##_entry();
#include "canzona/rules/rules.def"
#undef CANZONA_RULE
}  // namespace rules

const std::vector<RuleEntry>& rule_table() {
  static const std::vector<RuleEntry> table = {
#define CANZONA_RULE(rule) rules::rule##_entry(),
#include "canzona/rules/rules.def"
#undef CANZONA_RULE
  };
  return table;
}

bool has_option(const RuleEntry& rule, std::string_view option) {
  return std::ranges::find(rule.options, option, &OptionFact::name) !=
         rule.options.end();
}

std::vector<std::string> rules_with(std::string_view option) {
  std::vector<std::string> names;
  for (const RuleEntry& entry : rule_table())
    if (has_option(entry, option)) names.push_back(entry.name);
  return names;
}

RuleOptions with_device(std::string_view rule, RuleOptions options,
                        std::string_view device) {
  for (const RuleEntry& entry : rule_table())
    if (entry.name == rule && has_option(entry, "device"))
      options.try_emplace("device", device);
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

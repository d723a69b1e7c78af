#include "canzona/runtime/step/rule_set.h"

#include <charconv>
#include <cmath>
#include <map>
#include <tuple>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/facts.h"

namespace canzona {
namespace {

constexpr size_t kNoGroup = ~size_t{0};

size_t group_of(const std::string& name,
                const std::vector<ParameterGroup>& groups) {
  for (size_t g = 0; g < groups.size(); ++g)
    if (matches_pattern(name, groups[g].pattern)) return g;
  return kNoGroup;
}

// The text parses to exactly the same number.
std::string exact_text(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  CANZONA_CHECK(error == std::errc(), "a number of ", value);
  return {text, end};
}

RuleOptions with_decay(RuleOptions options, const ParameterGroup& group) {
  if (group.weight_decay)
    options["weight_decay"] = exact_text(*group.weight_decay);
  return options;
}

// The options in force are part of the plan: another device would run a
// different algorithm from the one that the plan priced.
void check_device(const SettledRequest& plan, const std::string& device) {
  const auto planned = plan.rule_options.find("device");
  if (planned != plan.rule_options.end() && planned->second != device)
    throw UsageError(cat("the plan is for rule ", plan.rule, " on device ",
                         planned->second, ", but this rank is on ", device));
}

// True if the plan's own rule and options update a tensor. A plan of an
// element-wise rule does not record which tensors are matrices.
bool is_of_matrices(const Tensor& tensor, bool element_wise) {
  return element_wise ? tensor.role == Role::kMatrix && tensor.shape.size() >= 2
                      : tensor.matrix_rule;
}

}  // namespace

void check_groups(const Plan& plan, const std::vector<ParameterGroup>& groups) {
  for (const ParameterGroup& group : groups) {
    bool used = false;
    for (const Tensor& tensor : plan.model.tensors)
      used = used || matches_pattern(tensor.name, group.pattern);
    if (!used)
      throw UsageError(cat("parameter group ", quoted(group.pattern),
                           " matches no tensor of ", plan.model.name));
    if (!std::isfinite(group.learning_rate_factor) ||
        group.learning_rate_factor < 0)
      throw UsageError(cat("parameter group ", quoted(group.pattern),
                           ": learning rate factor ",
                           group.learning_rate_factor,
                           "; expected a finite number of at least 0"));
  }
}

RuleSet::RuleSet(const SettledRequest& plan, const RuleFacts& facts,
                 const Settings& settings, const std::string& device) {
  check_device(plan, device);
  const bool element_wise = !facts.needs_whole_matrix();
  std::vector<int64_t> column_heads(plan.model.tensors.size(), 1);
  for (const Matrix& m : plan.matrices)
    column_heads[index(m.tensor)] = m.column_heads;
  std::map<std::tuple<bool, size_t, int64_t>, int32_t> known;
  for (size_t t = 0; t < plan.model.tensors.size(); ++t) {
    const Tensor& tensor = plan.model.tensors[t];
    const size_t group = group_of(tensor.name, settings.groups);
    const bool of_matrices = is_of_matrices(tensor, element_wise);
    const auto [place, added] = known.try_emplace(
        {of_matrices, group, column_heads[t]},
        static_cast<int32_t>(entries_.size()));
    number_.push_back(place->second);
    if (!added) continue;
    const ParameterGroup own =
        group == kNoGroup ? ParameterGroup{} : settings.groups[group];
    RuleOptions base = of_matrices ? plan.rule_options : settings.adamw;
    if (column_heads[t] > 1) base["column_heads"] = cat(column_heads[t]);
    entries_.push_back({make_rule(of_matrices ? plan.rule : kElementRule,
                                  with_decay(base, own), DType::kFp32, device),
                        of_matrices, own.learning_rate_factor});
  }
}

RulesOfTensors RuleSet::facts() const {
  RulesOfTensors out{number_, {}};
  for (const Entry& entry : entries_) out.facts.push_back(&entry.rule->facts());
  return out;
}

}  // namespace canzona

// The rules of a run: the plan's for matrices and AdamW for all else, one
// instance for each group of tensors with its own decay or learning rate.
//
//   RuleSet rules(plan, *facts, {.groups = {{"*norm*", 0.0}}}, "cpu");
//   rules.of(tensor).rule->apply(…);
//
// A plan whose rule is element-wise (AdamW) owns no matrix, but its options
// still apply to matrices: tensors are then told apart by their role. The first
// group whose pattern matches a tensor's name applies. Immutable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/schedule/updates.h"
#include "canzona/rules/rule.h"

namespace canzona {

struct ParameterGroup {
  std::string pattern;  // for names: '*' matches any run of characters, '?' one
  std::optional<double> weight_decay = {};  // empty: the rule's own
  double learning_rate_factor = 1;
};

// Throws UsageError naming a group that matches no tensor or has an invalid
// factor.
void check_groups(const Plan& plan, const std::vector<ParameterGroup>& groups);

class RuleSet {
 public:
  struct Settings {
    RuleOptions adamw = {};
    std::vector<ParameterGroup> groups = {};
  };

  // `facts`: those of the plan's rule. Throws UsageError naming a group that
  // asks for something its rule does not support.
  RuleSet(const SettledRequest& plan, const RuleFacts& facts,
          const Settings& settings, const std::string& device);

  struct Entry {
    std::unique_ptr<Rule> rule;
    bool of_matrices = false;  // uses the matrices' learning rate
    double learning_rate_factor = 1;
  };
  int32_t number_of(int32_t tensor) const {
    return number_[static_cast<size_t>(tensor)];
  }
  const Entry& entry(int32_t number) const {
    return entries_[static_cast<size_t>(number)];
  }
  RulesOfTensors facts() const;
  const Entry& of(int32_t tensor) const { return entry(number_of(tensor)); }

 private:
  std::vector<Entry> entries_;
  std::vector<int32_t> number_;  // by tensor
};

}  // namespace canzona

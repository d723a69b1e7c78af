// The rules of a run: the plan's for matrices and AdamW for all else, once for
// each group of tensors that decays or learns otherwise.
//
//   RuleSet rules(plan, *facts, {.groups = {{"*norm*", 0.0}}}, "cpu");
//   rules.of(tensor).rule->apply(…);
//
// A plan whose rule is element-wise (AdamW) owns no matrix, but its options are
// still those of the matrices: tensors are told apart by their role there. The
// first group whose pattern fits a tensor's name counts. Immutable.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "canzona/plan/schedule/updates.h"
#include "canzona/rules/rule.h"

namespace canzona {

struct ParameterGroup {
  std::string pattern;  // of names: '*' is any run of characters, '?' one
  std::optional<double> weight_decay = {};  // else the rule's own
  double learning_rate_factor = 1;
};

// UsageError names a group that fits no tensor, or whose factor is no number.
void check_groups(const Plan& plan, const std::vector<ParameterGroup>& groups);

class RuleSet {
 public:
  struct Settings {
    RuleOptions adamw = {};
    std::vector<ParameterGroup> groups = {};
  };

  // `facts`: of the plan's rule. UsageError names a group that asks what a rule
  // cannot.
  RuleSet(const SettledRequest& plan, const RuleFacts& facts,
          const Settings& settings, const std::string& device);

  struct Entry {
    std::unique_ptr<Rule> rule;
    bool of_matrices = false;  // its learning rate is that of the matrices
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

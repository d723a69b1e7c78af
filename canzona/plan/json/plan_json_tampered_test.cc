// A plan.json that was changed is refused, or its digest does not match. A plan
// that is read can be validated and predicted, whatever it says.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "canzona/base/error.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_toy_model.h"
#include "canzona/plan/validate/validate.h"

namespace canzona::plan::plan_json_tampered_test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

Model small_model() {
  Model model = model_of({matrix_tensor("q", 4, 2, Cut::kRows, 0),
                          matrix_tensor("e", 2, 6, Cut::kColumns, 1),
                          adamw_tensor("n", 3, 1)});
  model.tensors[0].sections = {{"q", {0, 2, 2, 2}, 2}};
  model.tensors[1].expert = 1;
  model.num_experts = 2;
  return model;
}

// Returns a small plan with everything that a plan can have: parts, experts,
// two stages.
std::string plan_with_all() {
  PlanOptions options;
  options.splits = parse_splits("head");
  return plan_to_json(
      plan_of(small_model(), "dp=2,tp=2,pp=2,ep=2", options,
              {"soap", {{"precondition_frequency", "3"}, {"phases", "2"}}}));
}

// Returns a plan of hierarchical ZeRO: slices, replicas, pools of modules,
// nodes of two ranks.
std::string plan_with_slices() {
  PlanOptions options;
  options.zero.sizes = {4, 2, 2};
  options.zero.reach = Reach::kPerNode;
  options.ranks_per_node = 2;
  return plan_to_json(plan_of(small_model(), "dp=8", options));
}

// Returns a plan whose experts are cut over other ranks than the dense tensors.
std::string plan_in_parts() {
  PlanOptions options;
  options.zero.sizes = {4, 2, 2};
  options.zero.experts = {2, 2, 1};
  return plan_to_json(plan_of(small_model(), "dp=2,ep=2", options));
}

// Returns a plan whose first tensor is cut by heads of columns.
std::string plan_of_columns() {
  Model model = small_model();
  model.tensors[0].sections = output_section(model.tensors[0].rows(), 2);
  PlanOptions options;
  options.splits = parse_splits("output-head");
  return plan_to_json(plan_of(model, "dp=2,tp=2", options, {"muon"}));
}

enum class Outcome { kRefused, kNoticed, kAccepted };

// Reads a text and, if it is a plan, validates and predicts it. Only a
// UsageError may be thrown.
Outcome outcome_of(const std::string& text) {
  try {
    const ReadPlan read = plan_from_json(text, "plan.json");
    try {
      validate(read.plan);
      predict(read.plan);
    } catch (const UsageError&) {
      // Counts that do not fit.
    }
    return read.digest_matches ? Outcome::kAccepted : Outcome::kNoticed;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("plan.json"));
    return Outcome::kRefused;
  }
}

struct NamedPlan {
  const char* name;
  std::string (*make)();
};

class TamperedPlan : public ::testing::TestWithParam<NamedPlan> {
 protected:
  void SetUp() override {
    text_ = GetParam().make();
    values_ = nlohmann::json::parse(text_);
  }
  const std::string& small_plan() const { return text_; }
  // A file is accepted if it has the same values, however they are written.
  void expect_noticed(const std::string& text, const std::string& what) const {
    const auto values = nlohmann::json::parse(text, nullptr, false);
    const bool same = !values.is_discarded() && values == values_;
    EXPECT_EQ(outcome_of(text) == Outcome::kAccepted, same) << what;
  }

 private:
  std::string text_;
  nlohmann::json values_;
};

INSTANTIATE_TEST_SUITE_P(
    Plans, TamperedPlan,
    ::testing::Values(NamedPlan{"with_all", plan_with_all},
                      NamedPlan{"with_slices", plan_with_slices},
                      NamedPlan{"in_parts", plan_in_parts},
                      NamedPlan{"of_columns", plan_of_columns}),
    [](const auto& plan) { return std::string(plan.param.name); });

TEST_P(TamperedPlan, TheOriginalIsAccepted) {
  EXPECT_EQ(outcome_of(small_plan()), Outcome::kAccepted);
  EXPECT_LT(small_plan().size(), 4200u);
}

TEST_P(TamperedPlan, EveryChangedDigitIsNoticed) {
  int changed = 0;
  for (size_t at = 0; at < small_plan().size(); ++at) {
    const char original = small_plan()[at];
    if (original < '0' || original > '9') continue;
    std::string text = small_plan();
    for (char digit = '0'; digit <= '9'; ++digit) {
      if (digit == original) continue;
      text[at] = digit;
      expect_noticed(text, cat("byte ", at, " is ", digit, " in ",
                               text.substr(at < 20 ? 0 : at - 20, 40)));
      ++changed;
    }
  }
  EXPECT_GT(changed, 1000);
}

TEST_P(TamperedPlan, EveryChangedByteIsNoticed) {
  for (size_t at = 0; at + 1 < small_plan().size(); ++at) {
    std::string text = small_plan();
    for (char c : {'x', '-', '"', '}', ' ', '\\', '\xff', '\0'}) {
      if (c == small_plan()[at]) continue;
      text[at] = c;
      expect_noticed(text, cat("byte ", at));
    }
  }
}

// The file is complete without its last byte, which ends the line.
TEST_P(TamperedPlan, EveryTruncationIsRefused) {
  const std::string& text = small_plan();
  for (size_t length = 0; length + 1 < text.size(); ++length) {
    EXPECT_EQ(outcome_of(text.substr(0, length)), Outcome::kRefused)
        << length << " bytes";
  }
  EXPECT_EQ(outcome_of(text.substr(0, text.size() - 1)), Outcome::kAccepted);
  EXPECT_EQ(outcome_of(text + "{}"), Outcome::kRefused);
  EXPECT_EQ(outcome_of(text + text), Outcome::kRefused);
}

TEST_P(TamperedPlan, UnknownKeysAreRefused) {
  int objects = 0;
  for (size_t at = 0; at < small_plan().size(); ++at) {
    if (small_plan()[at] != '{') continue;
    std::string text = small_plan();
    text.insert(at + 1, R"("zzz":"1",)");
    EXPECT_THAT([&] { plan_from_json(text, "plan.json"); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("plan.json"), HasSubstr("'zzz'"))));
    ++objects;
  }
  EXPECT_GE(objects, 10);
}

// Keeps members in the order of the file.
using Tree = nlohmann::ordered_json;
using Place = Tree::json_pointer;

// A tree whose text is, unless changed, that of `plan`. Fractions have more
// than one text; here they are texts themselves, in brackets of '@'.
Tree tree_of(const std::string& plan) {
  std::string marked;
  bool in_string = false;
  for (size_t at = 0; at < plan.size();) {
    const size_t end =
        in_string ? at : plan.find_first_not_of("+-.0123456789e", at);
    const std::string number = plan.substr(at, end - at);
    if (number.find('.') != std::string::npos ||
        (number.find('e') != std::string::npos && number.size() > 1)) {
      marked += cat("\"@", number, "@\"");
      at = end;
      continue;
    }
    if (plan[at] == '"') in_string = !in_string;
    marked += plan[at++];
  }
  return Tree::parse(marked);
}

std::string text_of(const Tree& tree) {
  std::string text = tree.dump();
  for (const char* mark : {"\"@", "@\""}) {
    for (size_t at = 0; (at = text.find(mark, at)) != std::string::npos;) {
      text.erase(at, 2);
    }
  }
  return text;
}

// Calls visit(its JSON pointer) for every value of a tree except the root.
template <class Visit>
void each_value(const Tree& tree, const Place& at, Visit visit) {
  if (!at.empty()) visit(at);
  if (!tree.is_structured()) return;
  for (const auto& [key, value] : tree.items()) {
    each_value(
        value,
        tree.is_array() ? at / static_cast<size_t>(stoul(key)) : at / key,
        visit);
  }
}

TEST_P(TamperedPlan, AnUnchangedTreeIsAccepted) {
  EXPECT_EQ(outcome_of(text_of(tree_of(small_plan()))), Outcome::kAccepted);
}

TEST_P(TamperedPlan, EveryMissingMemberIsRefused) {
  const Tree tree = tree_of(small_plan());
  each_value(tree, Place(), [&](const Place& at) {
    if (tree[at.parent_pointer()].is_array()) return;
    Tree changed = tree;
    changed[at.parent_pointer()].erase(at.back());
    // Options of a rule and of ZeRO have defaults.
    const std::string parent = at.parent_pointer().to_string();
    const bool optional = parent == "/request/groups/0/options" ||
                          at.back() == "zero" ||
                          parent == "/request/options/zero";
    const Outcome outcome = outcome_of(text_of(changed));
    EXPECT_NE(outcome, Outcome::kAccepted) << at.to_string();
    if (!optional) {
      EXPECT_EQ(outcome, Outcome::kRefused) << at.to_string();
    }
  });
}

TEST_P(TamperedPlan, EveryMissingOrRepeatedEntryIsNoticed) {
  const Tree tree = tree_of(small_plan());
  each_value(tree, Place(), [&](const Place& at) {
    if (!tree[at.parent_pointer()].is_array()) return;
    Tree fewer = tree, more = tree;
    fewer[at.parent_pointer()].erase(stoul(at.back()));
    more[at.parent_pointer()].push_back(tree[at]);
    expect_noticed(text_of(fewer), at.to_string());
    expect_noticed(text_of(more), at.to_string());
  });
}

// Any replacement of a value is refused or changes the digest, and never
// crashes.
TEST_P(TamperedPlan, EveryValueMayBeAnything) {
  const Tree tree = tree_of(small_plan());
  const std::vector<Tree> values{nullptr,
                                 true,
                                 "",
                                 "x",
                                 -1,
                                 0,
                                 1,
                                 2,
                                 3,
                                 7,
                                 1 << 20,
                                 INT32_MAX,
                                 int64_t{1} << 40,
                                 int64_t{1} << 61,
                                 INT64_MAX,
                                 INT64_MIN,
                                 UINT64_MAX,
                                 0.5,
                                 -0.5,
                                 1e300,
                                 1e-300,
                                 Tree::array(),
                                 Tree::object(),
                                 Tree::array({0}),
                                 Tree::array({0, 0, 0})};
  each_value(tree, Place(), [&](const Place& at) {
    for (const Tree& value : values) {
      if (tree[at] == value) continue;
      Tree changed = tree;
      changed[at] = value;
      expect_noticed(text_of(changed),
                     cat(at.to_string(), " is ", value.dump()));
    }
  });
}

// Indented, members in alphabetic order, fractions with 17 digits.
TEST_P(TamperedPlan, AnotherTextOfTheSameValuesIsAccepted) {
  const auto sorted = nlohmann::json::parse(small_plan());
  EXPECT_EQ(outcome_of(sorted.dump(2)), Outcome::kAccepted);
  EXPECT_EQ(outcome_of(sorted.dump()), Outcome::kAccepted);
  nlohmann::json changed = sorted;
  changed["request"]["options"]["bucket_elements"] = 17;
  EXPECT_EQ(outcome_of(changed.dump(2)), Outcome::kNoticed);
  const ReadPlan read = plan_from_json(changed.dump(2), "plan.json");
  EXPECT_NE(read.plan.digest, digest_of(read.plan));
}

// Costs of a shape that no matrix has do not belong to the plan.
TEST_P(TamperedPlan, WhatIsSaidBesideThePlanIsRefusedByItsPlace) {
  auto tree = nlohmann::json::parse(small_plan());
  const size_t shapes = tree["request"]["cost"]["ticks"].size();
  tree["request"]["cost"]["ticks"].push_back({1000, 1000, 1, 1});
  EXPECT_THAT([&] { plan_from_json(tree.dump(), "plan.json"); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("plan.json"),
                        HasSubstr(cat("/request/cost/ticks/", shapes)))));
}

TEST_P(TamperedPlan, OtherVersionsAreRefused) {
  for (const char* version :
       {"0", "4", "\"3\"", "3.0", "null", "-1", "99999999999999999999"}) {
    std::string text = small_plan();
    const std::string from = "\"version\":3,";
    text.replace(text.find(from), from.size(),
                 cat("\"version\":", version, ","));
    EXPECT_THAT([&] { plan_from_json(text, "plan.json"); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("plan.json"), HasSubstr("version"))))
        << version;
  }
}

TEST(TamperedFile, OtherFilesAreNoPlans) {
  for (const char* text :
       {"", " ", "null", "17", "\"canzona.plan\"", "[]", "{}", "nonsense",
        R"({"format": "canzona.cost_table", "version": 1})", R"({"format": 1})",
        R"({"format": ["canzona.plan"]})",
        "\x7f"
        "ELF",
        R"([{"name": "a", "shape": [1, 2]}])"}) {
    EXPECT_THAT(
        [&] { plan_from_json(text, "other.json"); },
        ThrowsMessage<UsageError>(
            AllOf(HasSubstr("other.json"),
                  AnyOf(HasSubstr("not a plan"), HasSubstr("not valid JSON")))))
        << text;
  }
}

TEST(TamperedFile, DeepNestingIsRefused) {
  const std::string brackets(1'000'000, '[');
  EXPECT_EQ(outcome_of(brackets), Outcome::kRefused);
  EXPECT_EQ(
      outcome_of(R"({"format":"canzona.plan","version":1,"mesh":)" + brackets),
      Outcome::kRefused);
}

}  // namespace
}  // namespace canzona::plan::plan_json_tampered_test

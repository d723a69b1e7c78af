// A plan.json that was changed is refused, or its digest does not match. What
// is read can be validated and predicted, whatever it says.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "canzona/base/error.h"
#include "canzona/plan/plan_json.h"
#include "canzona/plan/predict.h"
#include "canzona/plan/toy_model.h"
#include "canzona/plan/validate.h"

namespace canzona {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Everything a plan can have, in a few tensors: parts, experts, two stages.
const std::string& small_plan() {
  static const std::string text = [] {
    Model model = model_of({matrix_tensor("q", 4, 2, Cut::kRows, 0),
                            matrix_tensor("e", 2, 6, Cut::kColumns, 1),
                            adamw_tensor("n", 3, 1)});
    model.tensors[0].parts = {{"q", {0, 2, 2, 2}, 2}};
    model.tensors[1].expert = 1;
    model.num_experts = 2;
    PlanOptions options;
    options.splits = parse_splits("head");
    return plan_to_json(
        plan_of(model, "dp=2,tp=2,pp=2,ep=2", options,
                {"soap", {{"precondition_frequency", "3"}, {"phases", "2"}}}));
  }();
  return text;
}

enum class Outcome { kRefused, kNoticed, kAccepted };

// Reads a text and, if it is a plan, looks at all of it. Only a UsageError may
// come out.
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

TEST(TamperedPlan, TheOriginalIsAccepted) {
  EXPECT_EQ(outcome_of(small_plan()), Outcome::kAccepted);
  EXPECT_LT(small_plan().size(), 3000u);
}

TEST(TamperedPlan, EveryChangedDigitIsNoticed) {
  int changed = 0;
  for (size_t at = 0; at < small_plan().size(); ++at) {
    const char original = small_plan()[at];
    if (original < '0' || original > '9') continue;
    std::string text = small_plan();
    for (char digit = '0'; digit <= '9'; ++digit) {
      if (digit == original) continue;
      text[at] = digit;
      EXPECT_NE(outcome_of(text), Outcome::kAccepted)
          << "byte " << at << " is " << digit << " in "
          << text.substr(at < 20 ? 0 : at - 20, 40);
      ++changed;
    }
  }
  EXPECT_GT(changed, 1000);
}

TEST(TamperedPlan, EveryChangedByteIsNoticed) {
  for (size_t at = 0; at + 1 < small_plan().size(); ++at) {
    std::string text = small_plan();
    for (char c : {'x', '-', '"', '}', ' ', '\\', '\xff', '\0'}) {
      if (c == small_plan()[at]) continue;
      text[at] = c;
      EXPECT_NE(outcome_of(text), Outcome::kAccepted) << "byte " << at;
    }
  }
}

// Without its last byte, the end of the line, it is still whole.
TEST(TamperedPlan, EveryTruncationIsRefused) {
  const std::string& text = small_plan();
  for (size_t length = 0; length + 1 < text.size(); ++length) {
    EXPECT_EQ(outcome_of(text.substr(0, length)), Outcome::kRefused)
        << length << " bytes";
  }
  EXPECT_EQ(outcome_of(text.substr(0, text.size() - 1)), Outcome::kAccepted);
  EXPECT_EQ(outcome_of(text + "{}"), Outcome::kRefused);
  EXPECT_EQ(outcome_of(text + text), Outcome::kRefused);
}

TEST(TamperedPlan, UnknownKeysAreRefused) {
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
  EXPECT_EQ(objects, 12);
}

// Members stay in the order of the file.
using Tree = nlohmann::ordered_json;
using Place = Tree::json_pointer;

// A tree whose text is, unless changed, that of small_plan(). Fractions have
// more than one text; here they are texts themselves, in brackets of '@'.
Tree tree_of_plan() {
  std::string marked;
  bool in_string = false;
  for (size_t at = 0; at < small_plan().size();) {
    const size_t end =
        in_string ? at : small_plan().find_first_not_of("+-.0123456789e", at);
    const std::string number = small_plan().substr(at, end - at);
    if (number.find('.') != std::string::npos ||
        (number.find('e') != std::string::npos && number.size() > 1)) {
      marked += cat("\"@", number, "@\"");
      at = end;
      continue;
    }
    if (small_plan()[at] == '"') in_string = !in_string;
    marked += small_plan()[at++];
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

// Calls visit(its place) for every value of a tree but the root.
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

TEST(TamperedPlan, AnUnchangedTreeIsAccepted) {
  EXPECT_EQ(outcome_of(text_of(tree_of_plan())), Outcome::kAccepted);
}

TEST(TamperedPlan, EveryMissingMemberIsRefused) {
  const Tree tree = tree_of_plan();
  each_value(tree, Place(), [&](const Place& at) {
    if (tree[at.parent_pointer()].is_array()) return;
    Tree changed = tree;
    changed[at.parent_pointer()].erase(at.back());
    // Options of a rule have defaults.
    EXPECT_THAT(outcome_of(text_of(changed)),
                at.parent_pointer().to_string() == "/rule/options"
                    ? Outcome::kNoticed
                    : Outcome::kRefused)
        << at.to_string();
  });
}

TEST(TamperedPlan, EveryMissingOrRepeatedEntryIsNoticed) {
  const Tree tree = tree_of_plan();
  each_value(tree, Place(), [&](const Place& at) {
    if (!tree[at.parent_pointer()].is_array()) return;
    Tree fewer = tree, more = tree;
    fewer[at.parent_pointer()].erase(stoul(at.back()));
    more[at.parent_pointer()].push_back(tree[at]);
    EXPECT_NE(outcome_of(text_of(fewer)), Outcome::kAccepted) << at.to_string();
    EXPECT_NE(outcome_of(text_of(more)), Outcome::kAccepted) << at.to_string();
  });
}

// Whatever stands in place of a value is refused or noticed, and does no harm.
TEST(TamperedPlan, EveryValueMayBeAnything) {
  const Tree tree = tree_of_plan();
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
      EXPECT_NE(outcome_of(text_of(changed)), Outcome::kAccepted)
          << at.to_string() << " is " << value.dump();
    }
  });
}

TEST(TamperedPlan, OtherVersionsAreRefused) {
  for (const char* version :
       {"0", "2", "\"1\"", "1.0", "null", "-1", "99999999999999999999"}) {
    std::string text = small_plan();
    const std::string from = "\"version\":1,";
    text.replace(text.find(from), from.size(),
                 cat("\"version\":", version, ","));
    EXPECT_THAT([&] { plan_from_json(text, "plan.json"); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("plan.json"), HasSubstr("version"))))
        << version;
  }
}

TEST(TamperedPlan, OtherFilesAreNoPlans) {
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

TEST(TamperedPlan, DeepNestingIsRefused) {
  const std::string brackets(1'000'000, '[');
  EXPECT_EQ(outcome_of(brackets), Outcome::kRefused);
  EXPECT_EQ(
      outcome_of(R"({"format":"canzona.plan","version":1,"mesh":)" + brackets),
      Outcome::kRefused);
}

}  // namespace
}  // namespace canzona

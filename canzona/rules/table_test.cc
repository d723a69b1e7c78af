#include <gmock/gmock.h>

#include <filesystem>
#include <set>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/rules/facts.h"

namespace canzona::rules::table_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RuleTable, HasOneLineForEveryFolder) {
  std::set<std::string> folders;
  for (const auto& item :
       std::filesystem::directory_iterator(CANZONA_RULES_FOLDER)) {
    if (item.is_directory()) folders.insert(item.path().filename());
  }
  std::set<std::string> lines;
  for (const RuleEntry& entry : rule_table()) lines.insert(entry.name);
  EXPECT_EQ(lines, folders);
  EXPECT_EQ(lines.size(), rule_table().size());
}

TEST(RuleTable, MakesTheRuleItNames) {
  for (const RuleEntry& entry : rule_table()) {
    EXPECT_EQ(entry.make({})->name(), entry.name);
    EXPECT_EQ(make_rule_facts(entry.name, {})->name(), entry.name);
    EXPECT_FALSE(entry.summary.empty());
  }
}

TEST(RuleTable, ListsTheOptionsThatAreInForce) {
  for (const RuleEntry& entry : rule_table()) {
    std::set<std::string> listed;
    for (const OptionFact& fact : entry.options) {
      listed.insert(fact.name);
      EXPECT_FALSE(fact.meaning.empty()) << entry.name << " " << fact.name;
    }
    if (!entry.presets.empty()) listed.insert("preset");
    std::set<std::string> in_force;
    for (const auto& [name, value] : entry.make({})->options()) {
      in_force.insert(name);
    }
    EXPECT_EQ(in_force, listed) << entry.name;
  }
}

TEST(RuleTable, MakesTheSameFactsFromOptionsInForce) {
  for (const RuleEntry& entry : rule_table()) {
    const RuleOptions options = entry.make({})->options();
    EXPECT_EQ(entry.make(options)->options(), options) << entry.name;
  }
}

TEST(RuleTable, EveryPresetMakesFacts) {
  for (const RuleEntry& entry : rule_table()) {
    for (const Preset& preset : entry.presets) {
      EXPECT_EQ(entry.make({{"preset", preset.name}})->options().at("preset"),
                preset.name);
      EXPECT_FALSE(preset.summary.empty()) << entry.name << " " << preset.name;
    }
  }
}

TEST(RuleTable, EveryDefaultCanBeGiven) {
  for (const RuleEntry& entry : rule_table()) {
    for (const OptionFact& fact : entry.options) {
      EXPECT_NO_THROW(entry.make({{fact.name, fact.default_value}}))
          << entry.name << " " << fact.name;
    }
  }
}

TEST(RuleTable, RefreshesOnlyWithinAPeriod) {
  for (const RuleEntry& entry : rule_table()) {
    const auto facts = entry.make({});
    EXPECT_GE(facts->phases(), 1);
    EXPECT_LE(facts->phases(), facts->period());
    if (facts->period() == 1) {
      EXPECT_EQ(facts->work({64, 96}).refresh, Flops(0)) << entry.name;
    }
  }
}

TEST(RuleTable, EmptyMatricesCostNothing) {
  const int64_t huge = int64_t{1} << 40;
  for (const RuleEntry& entry : rule_table()) {
    const auto facts = entry.make({});
    for (MatrixShape shape : {MatrixShape{0, 0}, MatrixShape{0, huge},
                              MatrixShape{huge, 0}, MatrixShape{0, 1}}) {
      EXPECT_EQ(facts->work(shape).every_step, Flops(0)) << entry.name;
      EXPECT_EQ(facts->work(shape).refresh, Flops(0)) << entry.name;
      for (const StateFact& state : facts->states(shape)) {
        EXPECT_EQ(state.bytes(), Bytes(0)) << entry.name << " " << state.name;
      }
      EXPECT_NE(facts->algorithm(shape), "") << entry.name;
    }
  }
}

TEST(RuleTable, SidesOfOneAreLegal) {
  for (const RuleEntry& entry : rule_table()) {
    const auto facts = entry.make({});
    for (MatrixShape shape :
         {MatrixShape{1, 1}, MatrixShape{1, 9}, MatrixShape{9, 1}}) {
      EXPECT_GT(facts->work(shape).every_step, Flops(0)) << entry.name;
      EXPECT_FALSE(facts->states(shape).empty()) << entry.name;
    }
  }
}

// The message of the UsageError that `count` throws, or "".
template <class Count>
std::string complaint(const Count& count) {
  try {
    count();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// 2^40 is the longest side that a file may name.
TEST(RuleTable, NamesRuleAndMatrixWhereStatesDoNotFit) {
  const int64_t huge = int64_t{1} << 40;
  for (const RuleEntry& entry : rule_table()) {
    const auto facts = entry.make({});
    EXPECT_THAT(complaint([&] {
                  facts->states({huge, huge});
                }),
                AllOf(HasSubstr(cat("rule ", entry.name)),
                      HasSubstr("1099511627776x1099511627776")));
  }
}

// The second shape is for rules that do less work on long sides, the first for
// rules that do little work altogether.
TEST(RuleTable, NamesRuleAndMatrixWhereFlopsDoNotFit) {
  const int64_t huge = int64_t{1} << 40;
  for (const RuleEntry& entry : rule_table()) {
    const auto facts = entry.make({});
    const std::string complaints = complaint([&] {
                                     facts->work({huge, huge});
                                   }) +
                                   complaint([&] {
                                     facts->work({5000, huge});
                                   });
    EXPECT_THAT(complaints, AllOf(HasSubstr(cat("rule ", entry.name)),
                                  HasSubstr("x1099511627776")));
  }
}

TEST(RuleTable, RefusesNegativeSides) {
  for (const RuleEntry& entry : rule_table()) {
    const auto facts = entry.make({});
    EXPECT_THROW(facts->work({-1, 4}), UsageError) << entry.name;
    EXPECT_THROW(facts->states({4, -1}), UsageError) << entry.name;
  }
}

TEST(MakeRuleFacts, NamesTheNearestRuleAndAllOthers) {
  const std::string text = complaint([] { make_rule_facts("shampo", {}); });
  EXPECT_THAT(
      text, AllOf(HasSubstr("'shampo'"), HasSubstr("did you mean 'shampoo'?")));
  for (const RuleEntry& entry : rule_table()) {
    EXPECT_THAT(text, HasSubstr(entry.name));
  }
}

TEST(MakeRuleFacts, RefusesUnknownOptions) {
  EXPECT_THAT(
      [] {
        make_rule_facts("muon", {{"newton-schulz", "gram"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("'newton_schulz'")));
}

}  // namespace
}  // namespace canzona::rules::table_test

#include "canzona/plan/option_table.h"

#include <gmock/gmock.h>

#include <set>

#include "canzona/base/error.h"

namespace canzona::plan::option_table_test {
namespace {

using ::testing::HasSubstr;

TEST(OptionTable, NamesAndKeysAreDistinctAndEveryRowHasHelp) {
  std::set<std::string> names, keys;
  for (const PlannerOption& option : planner_options()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_TRUE(option.key.empty() || keys.insert(option.key).second)
        << option.key;
    EXPECT_FALSE(option.help.empty() || option.label.empty()) << option.name;
    EXPECT_FALSE(option.shown_default().empty()) << option.name;
    EXPECT_FALSE(option.words.empty() && !option.is_open && !option.range)
        << option.name << " allows nothing";
  }
}

// The defaults that help shows are those that PlanOptions begin with.
TEST(OptionTable, TheUsualTextChangesNothing) {
  for (const PlannerOption& option : planner_options()) {
    if (option.set == nullptr || option.usual.empty()) continue;
    PlanOptions options;
    option.set(options, option.usual, option.flag());
    EXPECT_EQ(options, PlanOptions()) << option.name;
  }
  EXPECT_EQ(PlannerTexts::defaults()["strategy"], PlanOptions().strategy);
}

TEST(OptionTable, EveryOtherWordChangesTheOptions) {
  for (const PlannerOption& option : planner_options()) {
    if (option.set == nullptr) continue;
    for (const std::string& word : option.words) {
      PlanOptions options;
      option.set(options, word, option.flag());
      EXPECT_EQ(options == PlanOptions(), word == option.usual)
          << option.name << " " << word;
    }
  }
}

TEST(OptionTable, RefusalsNameTheOption) {
  for (const PlannerOption& option : planner_options()) {
    if (option.set == nullptr) continue;
    PlanOptions options;
    try {
      option.set(options, "no such thing", option.flag());
      ADD_FAILURE() << option.name << " takes anything";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), HasSubstr("'no such thing'"));
    }
  }
}

TEST(OptionTable, PlansKeepTheTextThatSetsThem) {
  for (const PlannerOption& option : planner_options()) {
    if (option.kept == nullptr) continue;
    EXPECT_EQ(option.kept(PlanOptions()), option.usual) << option.name;
    for (const std::string& word : option.words) {
      PlanOptions options;
      option.set(options, word, option.name);
      EXPECT_EQ(option.kept(options), word) << option.name;
    }
  }
}

TEST(PlannerTexts, NothingIsGivenUntilItIs) {
  PlannerTexts texts;
  EXPECT_EQ(texts["zero"], "");
  EXPECT_EQ(texts.or_usual("zero"), "zero1");
  texts["zero"] = "hier:4";
  EXPECT_EQ(texts.or_usual("zero"), "hier:4");
  EXPECT_THROW(texts["zeroes"], InternalError);
}

}  // namespace
}  // namespace canzona::plan::option_table_test

#include "canzona/rules/options.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::rules::rules_options_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::ThrowsMessage;

const std::vector<OptionFact> kKnown = {
    {"colour", "red", "red|green|blue", "of the thing"},
    {"size", "3", "1..20", "of the thing"},
    {"turns", "auto", "auto|0..19", "of the thing"},
};

TEST(OptionsInForce, FillsInDefaults) {
  EXPECT_THAT(options_in_force("toy", kKnown, {{"size", "7"}}),
              ElementsAre(Pair("colour", "red"), Pair("size", "7"),
                          Pair("turns", "auto")));
}

TEST(OptionsInForce, IsStableWhenReadAgain) {
  const RuleOptions once =
      options_in_force("toy", kKnown, {{"size", "07"}, {"turns", "0"}});
  EXPECT_EQ(once.at("size"), "7");
  EXPECT_EQ(options_in_force("toy", kKnown, once), once);
}

TEST(OptionsInForce, TakesBothEndsOfARange) {
  EXPECT_NO_THROW(options_in_force("toy", kKnown, {{"size", "1"}}));
  EXPECT_NO_THROW(options_in_force("toy", kKnown, {{"size", "20"}}));
}

TEST(OptionsInForce, RefusesWhatIsNotAllowed) {
  for (const char* bad : {"0", "21", "-1", "", " 3", "3 ", "3.0", "0x3", "+3",
                          "auto", "99999999999999999999", "1..20"}) {
    EXPECT_THROW(options_in_force("toy", kKnown, {{"size", bad}}), UsageError)
        << "size=" << bad;
  }
  for (const char* bad : {"", "Red", "red|green", "AUTO", "20"}) {
    EXPECT_THROW(options_in_force("toy", kKnown, {{"colour", bad}}), UsageError)
        << "colour=" << bad;
  }
  EXPECT_THROW(options_in_force("toy", kKnown, {{"turns", "20"}}), UsageError);
}

TEST(OptionsInForce, TakesListsOfNumbersInARange) {
  const std::vector<OptionFact> known = {
      {"shares", "auto", "auto|0.0..1.0,...", "of each"},
      {"places", "none", "none|0..7,...", "of the thing"}};
  const auto shares = [&](const char* text) {
    return options_in_force("toy", known, {{"shares", text}}).at("shares");
  };
  EXPECT_EQ(shares("auto"), "auto");
  EXPECT_EQ(shares("0.50"), "0.5");
  EXPECT_EQ(shares("0,1e-1,1.0"), "0,0.1,1");
  EXPECT_THAT(reals_option({{"shares", "0,0.25"}}, "shares"),
              ElementsAre(0, 0.25));
  for (const char* bad : {"", ",", "0,", ",0", "0,2", "0;1", "auto,0", "0, 1"})
    EXPECT_THROW(shares(bad), UsageError) << bad;
  EXPECT_THAT(
      [&] {
        options_in_force("toy", known, {{"places", "0,1.5"}});
      },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("places='0,1.5'"), HasSubstr("none|0..7,..."))));
}

TEST(OptionsInForce, NamesRuleOptionValueAndNearestWord) {
  EXPECT_THAT(
      [] {
        options_in_force("toy", kKnown, {{"colour", "gren"}});
      },
      ThrowsMessage<UsageError>(AllOf(
          HasSubstr("toy"), HasSubstr("colour='gren'"),
          HasSubstr("red|green|blue"), HasSubstr("did you mean 'green'?"))));
  EXPECT_THAT(
      [] {
        options_in_force("toy", kKnown, {{"color", "red"}});
      },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("toy"), HasSubstr("'color'"),
                                      HasSubstr("did you mean 'colour'?"),
                                      HasSubstr("colour, size, turns"))));
}

TEST(OptionsInForce, NeverSuggestsARange) {
  EXPECT_THAT(
      [] {
        options_in_force("toy", kKnown, {{"size", "1.20"}});
      },
      ThrowsMessage<UsageError>(Not(HasSubstr("did you mean"))));
}

TEST(OptionsInForce, SaysThatARuleHasNone) {
  EXPECT_THAT(
      [] {
        options_in_force("plain", {}, {{"size", "3"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("it has no options")));
}

TEST(ReadRefresh, ReadsPeriodAndPhases) {
  const RuleOptions options =
      options_in_force("toy", refresh_option_facts("10"), {{"phases", "10"}});
  const RefreshOptions refresh = read_refresh("toy", options);
  EXPECT_EQ(refresh.period, 10);
  EXPECT_EQ(refresh.phases, 10);
}

TEST(ReadRefresh, RefusesMorePhasesThanSteps) {
  const RuleOptions options =
      options_in_force("toy", refresh_option_facts("10"), {{"phases", "11"}});
  EXPECT_THAT(
      [&] { read_refresh("toy", options); },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("phases=11"),
                                      HasSubstr("precondition_frequency=10"))));
}

const std::vector<OptionFact> kReal = {
    {"share", "0.5", "0.0..1.0", "of the thing"},
    {"rate", "0.001", "0.0..inf", "of the thing"},
    {"curve", "flat", "flat|TRIPLES", "of the thing"},
};

TEST(OptionsInForce, KeepsRealNumbersInTheirShortestForm) {
  const RuleOptions once =
      options_in_force("toy", kReal, {{"share", "0.50000"}, {"rate", "1E-1"}});
  EXPECT_EQ(once.at("share"), "0.5");
  EXPECT_EQ(once.at("rate"), "0.1");
  EXPECT_EQ(real_option(once, "rate"), 0.1);
  EXPECT_EQ(options_in_force("toy", kReal, once), once);
}

TEST(OptionsInForce, RefusesRealNumbersOutOfRange) {
  for (const char* bad : {"-0.1", "1.0001", "nan", "inf", "", "0.5x", "half"})
    EXPECT_THROW(options_in_force("toy", kReal, {{"share", bad}}), UsageError)
        << bad;
  EXPECT_THROW(options_in_force("toy", kReal, {{"rate", "inf"}}), UsageError);
  EXPECT_NO_THROW(options_in_force("toy", kReal, {{"rate", "1e300"}}));
}

TEST(OptionsInForce, LeavesOutTheUpperBoundOfAnOpenRange) {
  const std::vector<OptionFact> open = {
      {"decay", "0.5", "auto|0.0..<1.0", "of the thing"},
      {"place", "0", "0..<3", "of the thing"}};
  for (const char* good : {"0", "0.999999999", "auto"})
    EXPECT_NO_THROW(options_in_force("toy", open, {{"decay", good}})) << good;
  for (const char* bad : {"1", "1.0", "1.5", "-0.1", "<1"})
    EXPECT_THAT(
        [&] {
          options_in_force("toy", open, {{"decay", bad}});
        },
        ThrowsMessage<UsageError>(AllOf(HasSubstr(cat("decay='", bad, "'")),
                                        HasSubstr("auto|0.0..<1.0"))));
  EXPECT_NO_THROW(options_in_force("toy", open, {{"place", "2"}}));
  EXPECT_THROW(options_in_force("toy", open, {{"place", "3"}}), UsageError);
}

// A moment with a decay of 1 keeps its initial zeros, and its bias cannot be
// corrected.
TEST(OptionsInForce, EveryRuleRefusesAMomentThatForgetsNothing) {
  const std::vector<std::pair<std::string, std::string>> decays = {
      {"adamw", "beta1"},
      {"adamw", "beta2"},
      {"muon", "momentum"},
      {"nsgd", "momentum"},
      {"soap", "beta1"},
      {"soap", "beta3"},
      {"shampoo", "beta1"},
      {"shampoo", "beta3"},
      {"shampoo", "classic_momentum"}};
  for (const auto& [rule, name] : decays)
    for (const char* bad : {"1", "1.5", "-0.5"})
      EXPECT_THAT(
          [&] {
            make_rule_facts(rule, {{name, bad}});
          },
          ThrowsMessage<UsageError>(AllOf(HasSubstr(cat(name, "='", bad, "'")),
                                          HasSubstr("0.0..<1.0"))));
  // For these options it means plain sums.
  EXPECT_NO_THROW(make_rule_facts("soap", {{"beta2", "1"}}));
  EXPECT_NO_THROW(make_rule_facts("shampoo", {{"beta2", "1"}}));
}

TEST(OptionsInForce, ReadsNumbersInThrees) {
  const RuleOptions in_force =
      options_in_force("toy", kReal, {{"curve", "3.0,-4,1e1;2,0,0.50"}});
  EXPECT_EQ(in_force.at("curve"), "3,-4,10;2,0,0.5");
  EXPECT_THAT(read_triples(in_force.at("curve")),
              ElementsAre(ElementsAre(3, -4, 10), ElementsAre(2, 0, 0.5)));
  for (const char* bad : {"1,2", "1,2,3,4", "1,2,x", ";", "1,2,3;", "flatt"})
    EXPECT_THROW(options_in_force("toy", kReal, {{"curve", bad}}), UsageError)
        << bad;
}

TEST(OptionsInForce, TakesAPresetAndWhatIsGivenBesideIt) {
  const std::vector<Preset> presets = {
      {"plain", "as it is", {}},
      {"big", "larger", {{"size", "9"}, {"colour", "blue"}}}};
  EXPECT_THAT(options_in_force("toy", kKnown, presets, {}),
              ElementsAre(Pair("colour", "red"), Pair("preset", "plain"),
                          Pair("size", "3"), Pair("turns", "auto")));
  const RuleOptions big = options_in_force(
      "toy", kKnown, presets, {{"preset", "big"}, {"colour", "green"}});
  EXPECT_THAT(big, ElementsAre(Pair("colour", "green"), Pair("preset", "big"),
                               Pair("size", "9"), Pair("turns", "auto")));
  EXPECT_EQ(options_in_force("toy", kKnown, presets, big), big);
  EXPECT_THAT(
      [&] {
        options_in_force("toy", kKnown, presets, {{"preset", "bigg"}});
      },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("preset='bigg'"), HasSubstr("plain|big"))));
}

}  // namespace
}  // namespace canzona::rules::rules_options_test

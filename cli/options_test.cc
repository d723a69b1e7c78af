#include "cli/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"

namespace canzona::cli::options_test {

using testing::ElementsAre;
using testing::HasSubstr;

struct Flags {
  std::string plan;
  int rounds = 3;
  int64_t seed = 0;
  std::optional<double> alpha;
  std::optional<int64_t> tokens;
  std::optional<int64_t> step;
  std::optional<int64_t> batch;
  std::string wire = "fp32";
  std::string form;
  std::string output;
  std::vector<std::string> patterns;
  bool audit = false;
};

OptionRows options_of(Flags& a) {
  return joined(
      {{argument("PLAN", a.plan, "a plan"),
        option("--rounds", a.rounds, "N", "rounds to time; the fastest counts")
            .between(1, 1000),
        option("--seed", a.seed, "S", "random seed").at_least(0),
        number("--alpha", a.alpha, 0, 1, "A", "how freely bytes may lie")
            .by_default("the strategy's"),
        number("--tokens", a.tokens, 0, 4096, "N", "of a rank"),
        option("--step", a.step, "N", "the checkpoint of this step"),
        number("--batch", a.batch, 1, 0x1p40, "TOKENS", "of an iteration"),
        option("-o,--output", a.output, "FILE", "file to write"),
        option("--pattern", a.patterns, "PATTERN", "of names; repeatable"),
        flag("--audit", a.audit, "every tensor")},
       in_group("Products", {option("--wire", a.wire, "DTYPE", "of gradients")
                                 .only({"fp32", "bf16"}),
                             option("--form", a.form, "FORM", "of the product")
                                 .one_of({"plain", "gram", "auto"})})});
}

// Parses a command line; returns the message of a refusal, or "".
std::string read(std::vector<std::string> words, Flags& flags) {
  CLI::App app;
  const OptionRows rows = options_of(flags);
  declare(app, rows);
  std::reverse(words.begin(), words.end());
  try {
    app.parse(words);
    settle(rows);
  } catch (const CLI::ParseError& error) {
    return error.what();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

std::string refusal(std::vector<std::string> words) {
  Flags flags;
  return read(std::move(words), flags);
}

TEST(Options, ARowGivesItsValue) {
  Flags a;
  EXPECT_EQ(read({"p.json", "--rounds", "5", "--alpha", "0.5", "--tokens", "7",
                  "--step", "9", "--wire", "bf16", "-o", "file", "--audit",
                  "--pattern", "x", "--pattern", "y"},
                 a),
            "");
  EXPECT_EQ(a.plan, "p.json");
  EXPECT_EQ(a.rounds, 5);
  EXPECT_EQ(a.alpha, 0.5);
  EXPECT_EQ(a.tokens, 7);
  EXPECT_EQ(a.step, 9);
  EXPECT_EQ(a.wire, "bf16");
  EXPECT_EQ(a.output, "file");
  EXPECT_TRUE(a.audit);
  EXPECT_THAT(a.patterns, ElementsAre("x", "y"));
}

TEST(Options, WhatIsNotGivenStays) {
  Flags a;
  EXPECT_EQ(read({}, a), "");
  EXPECT_EQ(a.rounds, 3);
  EXPECT_EQ(a.alpha, std::nullopt);
  EXPECT_EQ(a.tokens, std::nullopt);
  EXPECT_EQ(a.wire, "fp32");
}

TEST(Options, BoundsAreAllowedAndNothingBeyond) {
  for (const char* fits : {"1", "1000"})
    EXPECT_EQ(refusal({"--rounds", fits}), "");
  EXPECT_EQ(refusal({"--rounds", "0"}), "--rounds 0: expected 1 to 1000");
  EXPECT_EQ(refusal({"--rounds", "1001"}), "--rounds 1001: expected 1 to 1000");
  EXPECT_EQ(refusal({"--seed", "0"}), "");
  EXPECT_EQ(refusal({"--seed", "-1"}), "--seed -1: expected 0 or more");
  for (const char* fits : {"0", "1"}) EXPECT_EQ(refusal({"--alpha", fits}), "");
  for (const char* wrong : {"-0.1", "1.1", "nan", "x"})
    EXPECT_THAT(refusal({"--alpha", wrong}), HasSubstr("--alpha")) << wrong;
  EXPECT_THAT(refusal({"--alpha", "2"}), HasSubstr("from 0 to 1"));
  EXPECT_THAT(refusal({"--tokens", "4097"}), HasSubstr("from 0 to 4096"));
  EXPECT_THAT(refusal({"--tokens", "1.5"}), HasSubstr("an integer"));
  EXPECT_THAT(refusal({"--rounds", "x"}), HasSubstr("a whole number"));
}

TEST(Options, TokensAreCountedInUnitsOf1024) {
  for (const auto& [text, tokens] :
       std::vector<std::pair<std::string, int64_t>>{
           {"4096", 4096}, {"8K", 8192}, {"4M", 4'194'304}, {"1G", 1 << 30}}) {
    Flags a;
    EXPECT_EQ(read({"--batch", text}, a), "");
    EXPECT_EQ(a.batch, tokens) << text;
  }
  for (const char* wrong : {"4m", "M", "-4M", "4MM", "1.5M", "9999999M"})
    EXPECT_THAT(refusal({"--batch", wrong}), HasSubstr("--batch")) << wrong;
  EXPECT_THAT(refusal({"--step", "4M"}), HasSubstr("--step"));
}

TEST(Options, ANumberBeyondItsTypeIsToldItsRange) {
  EXPECT_EQ(refusal({"--rounds", "3000000000"}),
            "--rounds: expected 1 to 1000, found '3000000000'");
  EXPECT_EQ(refusal({"--seed", "99999999999999999999"}),
            "--seed: expected 0 or more, found '99999999999999999999'");
  EXPECT_THAT(refusal({"--step", "99999999999999999999"}),
              HasSubstr("to 9223372036854775807"));
}

TEST(Options, ASwitchTakesNoValue) {
  EXPECT_EQ(refusal({"--audit=true"}), "");
  EXPECT_NE(refusal({"--audit=x"}), "");
}

TEST(Options, StrictWordsAreTheOnlyOnes) {
  EXPECT_EQ(refusal({"--wire", "fp23"}),
            "--wire 'fp23': expected fp32 or bf16 (did you mean 'fp32'?)");
  EXPECT_EQ(refusal({"--form", "new"}), "");  // its verb checks it
}

TEST(Options, HelpHasWordsAndDefault) {
  Flags a;
  std::vector<std::string> helps;
  for (const OptionRow& row : options_of(a)) helps.push_back(row.full_help());
  EXPECT_THAT(
      helps, ElementsAre(
                 "a plan", "rounds to time; the fastest counts [3]",
                 "random seed [0]", "how freely bytes may lie [the strategy's]",
                 "of a rank", "the checkpoint of this step", "of an iteration",
                 "file to write", "of names; repeatable", "every tensor",
                 "of gradients [fp32]", "of the product: plain, gram or auto"));
}

TEST(Options, CompletionOffersTheWords) {
  Flags a;
  CLI::App app;
  declare(app, options_of(a));
  EXPECT_THAT(offer_of(*app.get_option("--wire")).words,
              ElementsAre("fp32", "bf16"));
  EXPECT_THAT(offer_of(*app.get_option("--form")).words,
              ElementsAre("plain", "gram", "auto"));
  EXPECT_TRUE(offer_of(*app.get_option("--output")).files);
  EXPECT_TRUE(offer_of(*app.get_option("--rounds")).words.empty());
  EXPECT_EQ(app.get_option("--wire")->get_group(), "Products");
}

}  // namespace canzona::cli::options_test

#include "canzona/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iomanip>  // std::quoted must not be confused with ours
#include <limits>
#include <random>

#include "canzona/base/units.h"

namespace canzona::text_test {
namespace {

using testing::ElementsAre;

TEST(Text, CountsThings) {
  EXPECT_EQ(counted_text(1, "step"), "1 step");
  EXPECT_EQ(counted_text(0, "step"), "0 steps");
  EXPECT_EQ(counted_text(2, "matrix"), "2 matrices");
  EXPECT_EQ(counted_text(1, "matrix"), "1 matrix");
  EXPECT_EQ(counted_text(3, "micro-batch"), "3 micro-batches");
}

TEST(Text, CatJoinsAnything) {
  EXPECT_EQ(cat("tp=", 8, ' ', 1.5, std::string("!")), "tp=8 1.5!");
  EXPECT_EQ(cat(), "");
  EXPECT_EQ(cat(true, uint64_t(-1), int64_t{1} << 63),
            "118446744073709551615-9223372036854775808");
  EXPECT_EQ(cat(1.0f, ' ', 1e6, ' ', 1.0 / 3, ' ', -0.0, ' ', 1e-5),
            "1 1e+06 0.333333 -0 1e-05");
  EXPECT_EQ(cat(std::numeric_limits<double>::infinity()), "inf");
  EXPECT_EQ(cat(Bytes{12}), "12 bytes");
}

TEST(Text, SplitKeepsEmptyWordsAndJoinUndoesIt) {
  EXPECT_THAT(split_text("a,b,,c", ','), ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(split_text("", ','), ElementsAre(""));
  EXPECT_THAT(split_text(",", ','), ElementsAre("", ""));
  EXPECT_EQ(join(split_text("a,b,,c", ','), ","), "a,b,,c");
  EXPECT_EQ(join({}, ","), "");
}

TEST(Text, QuotedIsSafeOnATerminal) {
  EXPECT_EQ(quoted("wq.weight"), "'wq.weight'");
  EXPECT_EQ(quoted("a\x1b[31mb\nc\x7f"), "'a?[31mb?c?'");
  EXPECT_EQ(quoted("caf\xC3\xA9"), "'caf\xC3\xA9'");
  EXPECT_EQ(quoted("\xC2\x9B"
                   "31m"),
            "'?31m'");  // C1: CSI
  EXPECT_EQ(quoted("a\xE2\x80\xAE"
                   "b"),
            "'a?b'");                  // direction mark
  EXPECT_EQ(quoted("\xFFx"), "'?x'");  // not UTF-8
  EXPECT_EQ(quoted(std::string_view("\0", 1)), "'?'");
}

TEST(Text, QuotedIsOursForEveryKindOfText) {
  std::string text = "a\x1b";
  const std::string& constant = text;
  EXPECT_EQ(cat(quoted(text)), "'a?'");
  EXPECT_EQ(cat(quoted(constant)), "'a?'");
  EXPECT_EQ(cat(quoted(std::string("a\x1b"))), "'a?'");
  EXPECT_EQ(cat(quoted(std::string_view(text))), "'a?'");
}

TEST(Text, QuotedIsCutAtACharacter) {
  EXPECT_EQ(quoted("abcdef", 3), "'abc...'");
  EXPECT_EQ(quoted("abc", 3), "'abc'");
  EXPECT_EQ(quoted("\xC3\xA9\xC3\xA9\xC3\xA9", 2), "'\xC3\xA9\xC3\xA9...'");
  EXPECT_EQ(printable(std::string(1000, 'x')).size(), 403u);
}

TEST(Text, NearestFindsTypingMistakes) {
  const std::vector<std::string> rules = {"adamw", "muon", "shampoo", "soap"};
  EXPECT_EQ(nearest("moun", rules), "muon");
  EXPECT_EQ(nearest("shampo", rules), "shampoo");
  EXPECT_EQ(nearest("SHAMPOO", rules), "shampoo");
  EXPECT_EQ(nearest("adam", rules), "adamw");
  EXPECT_EQ(nearest("soap", rules), "soap");
  EXPECT_EQ(nearest("lion", rules), "muon");
  EXPECT_EQ(nearest("sgd", rules), "");
  EXPECT_EQ(nearest("", rules), "");
  EXPECT_EQ(nearest("muon", {}), "");
}

TEST(Text, NearestGuessesNothingForShortWordsThatShareNothing) {
  const std::vector<std::string> axes = {"dp", "tp", "cp"};
  EXPECT_EQ(nearest("zz", axes), "");
  EXPECT_EQ(nearest("d", axes), "dp");
  EXPECT_EQ(nearest("pt", axes), "tp");
}

TEST(Text, DidYouMeanIsAHalfSentence) {
  EXPECT_EQ(did_you_mean("moun", {"muon"}), " (did you mean 'muon'?)");
  EXPECT_EQ(did_you_mean("x", {"muon"}), "");
}

TEST(NaturalLess, CountsRunsOfDigitsAsNumbers) {
  EXPECT_TRUE(natural_less("layer.9", "layer.10"));
  EXPECT_FALSE(natural_less("layer.10", "layer.9"));
  EXPECT_TRUE(natural_less("layer.9.b", "layer.10.a"));
  EXPECT_TRUE(natural_less("layer", "layer.0"));
  EXPECT_TRUE(natural_less("a", "b"));
  EXPECT_TRUE(natural_less("", "a"));
  EXPECT_FALSE(natural_less("a1", "a1"));
  // Numbers longer than any integer type.
  EXPECT_TRUE(
      natural_less("x" + std::string(40, '9'), "x1" + std::string(40, '0')));
}

TEST(NaturalLess, TellsLeadingZerosApart) {
  EXPECT_TRUE(natural_less("a01", "a1"));
  EXPECT_FALSE(natural_less("a1", "a01"));
  EXPECT_TRUE(natural_less("a1", "a02"));
  EXPECT_TRUE(natural_less("a1.x", "a01.y"));
}

std::vector<std::string> random_names(int count) {
  std::mt19937 random(7);
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) {
    std::string name;
    for (size_t left = random() % 6; left > 0; --left) {
      name += "0019a./:\xC3"[random() % 9];
    }
    names.push_back(name);
  }
  return names;
}

// Irreflexive, asymmetric, transitive, and only equal texts are equivalent.
TEST(NaturalLess, IsAStrictTotalOrder) {
  const std::vector<std::string> names = random_names(120);
  for (const std::string& a : names) {
    ASSERT_FALSE(natural_less(a, a)) << a;
    for (const std::string& b : names) {
      ASSERT_EQ(natural_less(a, b) + natural_less(b, a), a == b ? 0 : 1)
          << a << " " << b;
      if (!natural_less(a, b)) continue;
      for (const std::string& c : names) {
        if (natural_less(b, c)) {
          ASSERT_TRUE(natural_less(a, c)) << a << " " << b << " " << c;
        }
      }
    }
  }
}

TEST(NaturalLess, SortsTheSameFromAnyStart) {
  std::vector<std::string> names = random_names(200);
  std::vector<std::string> sorted = names;
  std::sort(sorted.begin(), sorted.end(), natural_less);
  std::reverse(names.begin(), names.end());
  std::sort(names.begin(), names.end(), natural_less);
  EXPECT_EQ(names, sorted);
}

TEST(MatchesPattern, KnowsStarAndQuestionMark) {
  EXPECT_TRUE(matches_pattern("layers.0.wq", "layers.*.wq"));
  EXPECT_TRUE(matches_pattern("layers.0.wq", "*"));
  EXPECT_TRUE(matches_pattern("layers.0.wq", "layers.?.w?"));
  EXPECT_FALSE(matches_pattern("layers.10.wq", "layers.?.wq"));
  EXPECT_FALSE(matches_pattern("layers.0.wq", "layers.*.wk"));
  EXPECT_TRUE(matches_pattern("", ""));
  EXPECT_TRUE(matches_pattern("", "**"));
  EXPECT_FALSE(matches_pattern("", "?"));
  EXPECT_FALSE(matches_pattern("a", ""));
  EXPECT_TRUE(matches_pattern("aXbXc", "a*X*c"));
  EXPECT_FALSE(matches_pattern("aXbXcd", "a*X*c"));
}

// A direct transcription of the definition: slow, and shares nothing with the
// above.
bool slow_match(std::string_view text, std::string_view pattern) {
  if (pattern.empty()) return text.empty();
  const std::string_view rest = pattern.substr(1);
  if (pattern[0] == '*') {
    return slow_match(text, rest) ||
           (!text.empty() && slow_match(text.substr(1), pattern));
  }
  return !text.empty() && (pattern[0] == '?' || pattern[0] == text[0]) &&
         slow_match(text.substr(1), rest);
}

TEST(MatchesPattern, AgreesWithItsDefinition) {
  std::mt19937 random(1);
  int matches = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    std::string pattern;
    for (size_t left = random() % 7; left > 0; --left) {
      text += "ab"[random() % 2];
    }
    for (size_t left = random() % 7; left > 0; --left) {
      pattern += "ab*?*"[random() % 5];
    }
    ASSERT_EQ(matches_pattern(text, pattern), slow_match(text, pattern))
        << text << " " << pattern;
    matches += matches_pattern(text, pattern);
  }
  EXPECT_GT(matches, 1000);
}

TEST(MatchesPattern, IsQuickOnHostilePatterns) {
  std::string pattern;
  for (int i = 0; i < 1000; ++i) pattern += "*a";
  EXPECT_FALSE(matches_pattern(std::string(5000, 'a') + "b", pattern + "c"));
}

}  // namespace
}  // namespace canzona::text_test

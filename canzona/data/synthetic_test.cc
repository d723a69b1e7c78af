#include "canzona/data/token_source.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <regex>
#include <string_view>

#include "canzona/base/digest.h"
#include "canzona/base/text.h"

namespace canzona::data::synthetic_test {
namespace {

constexpr int64_t kSize = 1 << 18;

// Existing runs must find the same text on other machines.
TEST(Synthetic, IsTheSameEverywhere) {
  EXPECT_EQ(sha256_hex(synthetic_text(1, kSize)),
            "ef90a952b88979135bfb69915f6f19f52cffbfa2b7c98360da594c59f4c6aa43");
}

TEST(Synthetic, IsPrintableAscii) {
  for (char c : synthetic_text(3, kSize))
    EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << int{c};
}

TEST(Synthetic, DependsOnTheSeedAndGrowsByItsEnd) {
  EXPECT_NE(synthetic_text(1, 1000), synthetic_text(2, 1000));
  EXPECT_EQ(synthetic_text(1, 1000), synthetic_text(1, 5000).substr(0, 1000));
  EXPECT_EQ(synthetic_text(1, 0), "");
  EXPECT_EQ(synthetic_text(1, 1).size(), 1U);
}

bool closes(std::string_view line) {
  std::string open;
  for (char c : line) {
    const size_t kind = std::string_view("()[]{}").find(c);
    if (kind == std::string_view::npos) continue;
    if (kind % 2 == 0) {
      open += c;
    } else if (open.empty() || open.back() != "([{"[kind / 2]) {
      return false;
    } else {
      open.pop_back();
    }
  }
  return open.empty();
}

TEST(Synthetic, ClosesBracketsAddsRightAndRepeats) {
  std::string text = synthetic_text(1, kSize);
  text.resize(text.rfind('\n'));
  const std::regex sum(R"((\d+) plus (\d+) is (\d+)\.)");
  const std::regex quote(
      "^\\w+ says \"([^\"]*)\" and \\w+ repeats \"([^\"]*)\"\\.");
  int brackets = 0, sums = 0, quotes = 0;
  for (const std::string& line : split_text(text, '\n')) {
    std::smatch found;
    EXPECT_TRUE(closes(line)) << line;
    brackets += line.find_first_of("([{") != std::string::npos;
    if (std::regex_match(line, found, sum)) {
      ++sums;
      EXPECT_EQ(std::stoi(found[1]) + std::stoi(found[2]), std::stoi(found[3]));
    } else if (std::regex_match(line, found, quote)) {
      ++quotes;
      EXPECT_EQ(found[1], found[2]);
    }
  }
  EXPECT_GT(brackets, 100);
  EXPECT_GT(sums, 100);
  EXPECT_GT(quotes, 100);
}

TEST(Synthetic, IsASourceOfTokens) {
  const auto tokens = open_tokens("synthetic", {.vocab = 256, .seed = 1});
  ASSERT_EQ(tokens->size(), 4 << 20);
  std::vector<int32_t> first(100);
  tokens->read(0, first);
  const std::string text = synthetic_text(1, 100);
  EXPECT_TRUE(std::ranges::equal(first, text));
  EXPECT_NE(tokens->digest(),
            open_tokens("synthetic", {.vocab = 256, .seed = 2})->digest());
}

}  // namespace
}  // namespace canzona::data::synthetic_test

#include "canzona/base/sum_order.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace canzona::sum_order_test {
namespace {

// Writes the whole as a formula, and requires it to stay within num_sums().
std::string formula(int count) {
  std::vector<std::string> sums(
      static_cast<size_t>(TreeOrder::num_sums(count)));
  TreeOrder::add(
      count,
      [&](int term, int sum) {
        sums.at(static_cast<size_t>(sum)) = std::to_string(term);
      },
      [&](int to, int from) {
        std::string& left = sums.at(static_cast<size_t>(to));
        left = "(" + left + "+" + sums.at(static_cast<size_t>(from)) + ")";
      });
  return sums[0];
}

// Adds neighbours level by level, which shares no code with TreeOrder.
std::string formula_by_levels(int count) {
  std::vector<std::string> level;
  for (int i = 0; i < count; ++i) level.push_back(std::to_string(i));
  while (level.size() > 1) {
    std::vector<std::string> next;
    for (size_t i = 0; i < level.size(); i += 2)
      next.push_back(i + 1 == level.size()
                         ? level[i]
                         : "(" + level[i] + "+" + level[i + 1] + ")");
    level = next;
  }
  return level[0];
}

TEST(SumOrder, CarriesAnOddTermUp) {
  EXPECT_EQ(formula(7), "(((0+1)+(2+3))+((4+5)+6))");
}

TEST(SumOrder, IsTheTreeByLevelsForAnyCount) {
  for (int count = 1; count <= 70; ++count)
    EXPECT_EQ(formula(count), formula_by_levels(count)) << count;
}

}  // namespace
}  // namespace canzona::sum_order_test

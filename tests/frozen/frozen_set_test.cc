// The frozen set: what plans, predictions, simulated iterations and steps have
// given before, line by line. Results that are meant to change are written
// anew, and the difference of the files belongs to the change:
//
//   CANZONA_FROZEN_WRITE=tests/data/frozen build/.../canzona_frozen_test
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "test_frozen_facts.h"

namespace canzona::tests::frozen_set_test {
namespace {

using FactsOf = FrozenFacts (*)(const FrozenCase&);

void write_lines(const std::string& path, const std::vector<FrozenCase>& cases,
                 FactsOf facts_of) {
  std::ofstream file(path);
  for (const FrozenCase& c : cases)
    file << frozen_line(c.text(), facts_of(c)) << '\n';
  ASSERT_TRUE(file.flush()) << path << " cannot be written";
}

// The first cases that differ with all that differs in them; of the others, how
// many there are and what differs.
class Differences {
 public:
  void add(const std::string& text, const std::vector<std::string>& what) {
    if (what.empty()) return;
    std::string lines;
    for (const std::string& line : what) {
      lines += "\n  " + line;
      ++num_by_kind_[line.substr(0, line.find(':'))];
    }
    if (++num_cases_ <= kMostShown) ADD_FAILURE() << text << lines;
  }
  void expect_none() const {
    std::string kinds;
    for (const auto& [kind, count] : num_by_kind_)
      kinds += " " + kind + " (" + std::to_string(count) + ")";
    EXPECT_EQ(num_cases_, 0) << "cases differ, in" << kinds;
  }

 private:
  static constexpr int kMostShown = 20;
  std::map<std::string, int> num_by_kind_;
  int num_cases_ = 0;
};

void expect_as_frozen(const std::string& name,
                      const std::vector<FrozenCase>& cases, FactsOf facts_of) {
  if (const char* folder = std::getenv("CANZONA_FROZEN_WRITE")) {
    write_lines(folder + ("/" + name), cases, facts_of);
    return;
  }
  const std::map<std::string, FrozenFacts> frozen =
      read_frozen(CANZONA_TEST_DATA "/frozen/" + name);
  EXPECT_EQ(frozen.size(), cases.size());
  Differences all;
  for (const FrozenCase& c : cases) {
    const auto at = frozen.find(c.text());
    if (at == frozen.end())
      all.add(c.text(), {"request: not in " + name});
    else
      all.add(c.text(), differences(at->second, facts_of(c)));
  }
  all.expect_none();
}

TEST(FrozenSet, OfPlans) {
  expect_as_frozen("plans.txt", frozen_plan_cases(), frozen_plan_facts);
}

TEST(FrozenSet, OfIterations) {
  expect_as_frozen("iterations.txt", frozen_iteration_cases(),
                   frozen_iteration_facts);
}

TEST(FrozenSet, OfSteps) {
  expect_as_frozen("steps.txt", frozen_step_cases(), frozen_step_facts);
}

TEST(FrozenLines, NameWhatDiffers) {
  const FrozenFacts frozen{.exact = {{"plan", "a"}, {"bytes", "b"}},
                           .times = {{"mean", 1.0}, {"worst", 0.0}}};
  EXPECT_TRUE(differences(frozen, frozen).empty());
  FrozenFacts now = frozen;
  now.times[0].second = 1.0 + 1e-13;
  EXPECT_TRUE(differences(frozen, now).empty());
  now.times[0].second = 1.0 + 1e-11;
  now.exact[1] = {"bytes", "c"};
  now.exact.emplace_back("pools", "d");
  EXPECT_EQ(differences(frozen, now),
            (std::vector<std::string>{"bytes: was b, is c",
                                      "pools: was not there, is d",
                                      "mean: was 1, is 1.00000000001"}));
}

}  // namespace
}  // namespace canzona::tests::frozen_set_test

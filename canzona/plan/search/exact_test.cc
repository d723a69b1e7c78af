#include "canzona/plan/search/joint.h"

#include <gmock/gmock.h>

#include "canzona/plan/search/test_optimum.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::exact_test {
namespace {

using Loads = std::vector<int64_t>;

// Returns the smallest objective within the caps by trying all assignments;
// nothing if there is none.
class TriesAll {
 public:
  explicit TriesAll(const ExactCase& c) : c_(c), rank_(c.items.size(), 0) {}

  std::optional<int64_t> optimum() {
    do {
      if (!allowed()) continue;
      const int64_t objective = objective_of(c_, rank_);
      if (!best_ || objective < *best_) best_ = objective;
    } while (advance());
    return best_;
  }

  static int64_t objective_of(const ExactCase& c,
                              const std::vector<int32_t>& rank) {
    int64_t sum = 0;
    for (size_t p = 0; p < c.steps.size(); ++p) {
      Loads loads(c.zones.size(), 0);
      for (size_t i = 0; i < rank.size(); ++i) {
        loads[static_cast<size_t>(rank[i])] += c.items[i].load[p];
      }
      sum += c.steps[p] * *std::max_element(loads.begin(), loads.end());
    }
    return sum;
  }

  static bool allowed(const ExactCase& c, const std::vector<int32_t>& rank) {
    std::vector<Loads> held(c.caps.size(), Loads(c.homes.size(), 0));
    const auto home = [&](size_t i) {
      return static_cast<size_t>(c.homes[static_cast<size_t>(rank[i])]);
    };
    for (size_t i = 0; i < rank.size(); ++i) {
      const ExactItem& item = c.items[i];
      if (item.zone >= 0 &&
          item.zone != c.zones[static_cast<size_t>(rank[i])]) {
        return false;
      }
      bool first_of_tensor = true;
      for (size_t j = 0; j < i; ++j) {
        if (c.items[j].tensor != item.tensor) continue;
        first_of_tensor = false;
        if (home(j) != home(i)) return false;
      }
      if (first_of_tensor) {
        int64_t& sum = held[static_cast<size_t>(item.bucket)][home(i)];
        sum += item.elements;
        if (sum > c.caps[static_cast<size_t>(item.bucket)]) return false;
      }
    }
    return true;
  }

 private:
  bool allowed() const { return allowed(c_, rank_); }

  bool advance() {
    for (int32_t& r : rank_) {
      if (++r < static_cast<int32_t>(c_.zones.size())) return true;
      r = 0;
    }
    return false;
  }

  const ExactCase& c_;
  std::vector<int32_t> rank_;
  std::optional<int64_t> best_;
};

ExactCase simple_case(const Loads& sizes, int32_t ranks) {
  ExactCase c;
  c.steps = {1};
  c.zones.assign(static_cast<size_t>(ranks), 0);
  for (int32_t r = 0; r < ranks; ++r) c.homes.push_back(r);
  c.caps = {INT64_MAX};
  for (int64_t size : sizes) {
    c.items.push_back({{size}, static_cast<int32_t>(c.items.size()), 0, 0, -1});
  }
  return c;
}

// Costs of Newton–Schulz on shapes as models have them, standard or Gram.
int64_t shape_cost(Random& random) {
  const std::vector<int64_t> sides{768, 1024, 1536, 2048, 2560, 4096, 5120};
  const auto [m, n] = std::minmax({random.pick(sides), random.pick(sides)});
  return random.coin() ? 5 * (4 * m * m * n + 2 * m * m * m)
                       : 6 * m * m * n + 14 * m * m * m;
}

void expect_optimal(Random& random, bool shapes) {
  const int64_t items =
      random.coin() ? random.between(12, 14) : random.between(1, 11);
  const int32_t ranks = random.small(1, 4);
  Loads sizes;
  for (int64_t i = 0; i < items; ++i) {
    sizes.push_back(shapes ? shape_cost(random) : random.between(1, 1000));
  }
  const ExactCase c = simple_case(sizes, ranks);
  const auto solution = solve_exactly(c);
  ASSERT_TRUE(solution);
  ASSERT_TRUE(TriesAll::allowed(c, *solution));
  ASSERT_EQ(TriesAll::objective_of(c, *solution),
            optimum_by_subsets(sizes, ranks));
}

// 8 + 7 + 6 and 5 + 5 + 5 + 5 + 1 are the only halves of 42.
TEST(ExactSearch, FindsTheOptimum) {
  const ExactCase c = simple_case({8, 7, 6, 5, 5, 5, 5, 1}, 2);
  const auto ranks = solve_exactly(c);
  ASSERT_TRUE(ranks);
  Loads loads(2, 0);
  for (size_t i = 0; i < ranks->size(); ++i) {
    loads[static_cast<size_t>((*ranks)[i])] += c.items[i].load[0];
  }
  EXPECT_EQ(loads[0], 21);
  EXPECT_EQ(loads[1], 21);
}

TEST(ExactSearch, IsOptimalForUniformCosts) {
  Random random(40);
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(cat("trial ", trial));
    ASSERT_NO_FATAL_FAILURE(expect_optimal(random, false));
  }
}

TEST(ExactSearch, IsOptimalForCostsOfShapes) {
  Random random(41);
  for (int trial = 0; trial < 500; ++trial) {
    SCOPED_TRACE(cat("trial ", trial));
    ASSERT_NO_FATAL_FAILURE(expect_optimal(random, true));
  }
}

// Up to seven items with everything that restricts them: tensors of several
// items, homes of several ranks, zones, buckets with caps, refresh steps.
ExactCase restricted_case(Random& random) {
  ExactCase c;
  const auto tp = random.pick<int32_t>({1, 2, 4});
  const int32_t homes = 4 / tp;
  const bool with_zones = homes > 1 && random.coin();
  for (int32_t r = 0; r < homes * tp; ++r) {
    c.homes.push_back(r / tp);
    c.zones.push_back(with_zones ? r / tp % 2 : 0);
  }
  const int64_t dims = random.between(1, 3);
  for (int64_t p = 0; p < dims; ++p) {
    c.steps.push_back(dims == 1 ? 1 : random.between(0, 9));
  }
  for (int64_t b = random.between(1, 2); b > 0; --b) {
    c.caps.push_back(random.between(3, 30));
  }
  const int64_t count = random.between(1, 7);
  for (int32_t tensor = 0; static_cast<int64_t>(c.items.size()) < count;
       ++tensor) {
    ExactItem item;
    item.tensor = tensor;
    item.bucket = random.small(0, static_cast<int32_t>(c.caps.size()) - 1);
    item.elements = random.between(1, 12);
    item.zone = with_zones ? random.pick<int32_t>({-1, 0, 1}) : -1;
    for (int64_t n = random.between(1, 3);
         n > 0 && static_cast<int64_t>(c.items.size()) < count; --n) {
      item.load.clear();
      for (int64_t p = 0; p < dims; ++p) {
        item.load.push_back(random.between(0, 20));
      }
      c.items.push_back(item);
    }
  }
  return c;
}

TEST(ExactSearch, IsOptimalUnderAllRestrictions) {
  Random random(42);
  int impossible = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const ExactCase c = restricted_case(random);
    const std::optional<int64_t> best = TriesAll(c).optimum();
    const auto solution = solve_exactly(c);
    SCOPED_TRACE(cat("trial ", trial));
    ASSERT_EQ(solution.has_value(), best.has_value());
    if (!best) {
      ++impossible;
      continue;
    }
    ASSERT_TRUE(TriesAll::allowed(c, *solution));
    ASSERT_EQ(TriesAll::objective_of(c, *solution), *best);
  }
  EXPECT_GT(impossible, 20);
  EXPECT_LT(impossible, 200);
}

TEST(ExactSearch, SaysThatNothingKeepsTheCaps) {
  ExactCase c = simple_case({3, 3, 3}, 2);
  for (ExactItem& item : c.items) item.elements = 10;
  c.caps = {19};
  EXPECT_EQ(solve_exactly(c), std::nullopt);
  c.caps = {20};
  EXPECT_NE(solve_exactly(c), std::nullopt);
}

TEST(ExactSearch, DealsNothing) {
  const auto solution = solve_exactly(simple_case({}, 3));
  ASSERT_TRUE(solution);
  EXPECT_TRUE(solution->empty());
}

}  // namespace
}  // namespace canzona::plan::exact_test

#include "canzona/plan/micro_groups/modes.h"

#include <gmock/gmock.h>

#include <queue>

#include "canzona/base/error.h"
#include "canzona/plan/testing/test_support.h"

namespace canzona::plan::capacity_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

PlanOptions with_capacity(int64_t bytes) {
  PlanOptions options = with_strategy("contiguous", "capacity");
  options.capacity_bytes = bytes;
  return options;
}

std::vector<int32_t> owners_of(const Plan& plan) {
  std::vector<int32_t> out;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    out.push_back(plan.parts[0].owners[m].front());
  }
  return out;
}

// 100, 64, 36 and 16 bytes, all at their owner since tp cuts none of them. With
// room for 110, 16 would be the next beside 64 + 36 = 100: a new group begins.
TEST(CapacityGroups, CloseWhenAnOwnerWouldExceedTheCapacity) {
  const Plan plan = plan_of(squares({2, 3, 4, 5}), "tp=2", with_capacity(110));
  EXPECT_THAT(plan.parts[0].micro_group, ElementsAre(1, 0, 0, 0));
  EXPECT_THAT(owners_of(plan), ElementsAre(0, 1, 1, 0));
}

TEST(CapacityGroups, AreOneWhereAllFits) {
  const Plan plan = plan_of(squares({2, 3, 4, 5}), "tp=2", with_capacity(116));
  EXPECT_THAT(plan.parts[0].micro_group, ElementsAre(0, 0, 0, 0));
}

TEST(CapacityGroups, RefuseAMatrixAboveTheCapacityByName) {
  EXPECT_THAT(
      [] {
        plan_of(squares({2, 3, 4, 5}), "tp=2", with_capacity(99));
      },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("'m3'"), HasSubstr("100"), HasSubstr("99"))));
  EXPECT_NO_THROW(plan_of(squares({2, 3, 4, 5}), "tp=2", with_capacity(100)));
}

// The shard has 1/tp of the bytes of the whole matrix.
TEST(CapacityGroups, CountTheShardOfWhatTpCuts) {
  const Model model = model_of({matrix_tensor("cut", 4, 5, Cut::kRows)});
  EXPECT_NO_THROW(plan_of(model, "tp=4", with_capacity(20)));
  EXPECT_THROW(plan_of(model, "tp=4", with_capacity(19)), UsageError);
  EXPECT_THROW(plan_of(model, "tp=2", with_capacity(39)), UsageError);
}

TEST(CapacityGroups, WithoutCapacityEveryMatrixIsItsOwn) {
  const Plan plan = plan_of(squares({2, 5, 3, 4}), "tp=2", with_capacity(0));
  EXPECT_THAT(plan.parts[0].micro_group, ElementsAre(3, 0, 2, 1));
}

// The oracle is the published greedy algorithm without shortcuts: every trial
// deals all items of the group again.
struct Dealt {
  std::vector<int32_t> owner;  // per item
  int64_t most_bytes = 0;
};

struct Item {
  size_t matrix;
  int64_t weight;
  int64_t bytes;
};

Dealt longest_first(const std::vector<Item>& items, int32_t ranks) {
  using Entry = std::pair<int64_t, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> heap;
  for (int32_t r = 0; r < ranks; ++r) heap.push({0, r});
  std::vector<int64_t> bytes(static_cast<size_t>(ranks), 0);
  Dealt dealt;
  for (const Item& item : items) {
    const auto [load, rank] = heap.top();
    heap.pop();
    heap.push({load + item.weight, rank});
    bytes[static_cast<size_t>(rank)] += item.bytes;
    dealt.owner.push_back(rank);
  }
  dealt.most_bytes = *std::max_element(bytes.begin(), bytes.end());
  return dealt;
}

struct Schedule {
  std::vector<int32_t> group;  // per matrix
  std::vector<int32_t> owner;
};

Schedule schedule_by_hand(const std::vector<Item>& items, int32_t ranks,
                          int64_t capacity) {
  Schedule s{std::vector<int32_t>(items.size()),
             std::vector<int32_t>(items.size())};
  std::vector<Item> open;
  int32_t number = 0;
  auto close = [&] {
    const Dealt dealt = longest_first(open, ranks);
    for (size_t i = 0; i < open.size(); ++i) {
      s.group[open[i].matrix] = number;
      s.owner[open[i].matrix] = dealt.owner[i];
    }
    open.clear();
    ++number;
  };
  for (const Item& item : items) {
    open.push_back(item);
    if (longest_first(open, ranks).most_bytes <= capacity) continue;
    open.pop_back();
    close();
    open.push_back(item);
  }
  close();
  return s;
}

TEST(CapacityGroups, FollowTheListing) {
  Random random(60);
  for (int trial = 0; trial < 200; ++trial) {
    const int32_t tp = random.pick<int32_t>({2, 3, 4, 8});
    const Model model = random_matrices(random, random.between(1, 40), 20, tp);
    const bool by_flops = random.coin();
    std::vector<Item> items;
    int64_t largest = 0;
    for (size_t m = model.tensors.size(); m-- > 0;) {
      const Tensor& t = model.tensors[m];
      const auto [low, high] = std::minmax({t.rows(), t.cols()});
      const int64_t shard = t.elements() / (t.cut == Cut::kNone ? 1 : tp);
      items.push_back(
          {m, by_flops ? 20 * high * low * low + 10 * low * low * low : shard,
           shard * 4});
      largest = std::max(largest, shard * 4);
    }
    std::stable_sort(
        items.begin(), items.end(),
        [](const Item& a, const Item& b) { return a.weight > b.weight; });
    PlanOptions options = with_capacity(random.between(largest, 4 * largest));
    if (by_flops) options.weight = Weight::kFlops;
    const Plan plan = plan_of(model, cat("tp=", tp), options,
                              {"muon", {{"newton_schulz", "standard"}}});
    const Schedule s = schedule_by_hand(items, tp, options.capacity_bytes);
    ASSERT_EQ(plan.parts[0].micro_group, s.group) << "trial " << trial;
    ASSERT_EQ(owners_of(plan), s.owner) << "trial " << trial;
  }
}

}  // namespace
}  // namespace canzona::plan::capacity_test

#include "canzona/train/stage_links.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

namespace canzona::train::schedule_1f1b_test {
namespace {

constexpr StageTask forward(int64_t m) { return {true, m}; }
constexpr StageTask backward(int64_t m) { return {false, m}; }

TEST(Schedule1f1b, Example) {
  EXPECT_THAT(
      schedule_1f1b(1, 3, 4),
      testing::ElementsAre(forward(0), forward(1), backward(0), forward(2),
                           backward(1), forward(3), backward(2), backward(3)));
}

TEST(Schedule1f1b, TheLastStageAlternates) {
  EXPECT_THAT(
      schedule_1f1b(2, 3, 2),
      testing::ElementsAre(forward(0), backward(0), forward(1), backward(1)));
}

TEST(PairNeighbours, Example) {
  EXPECT_THAT(
      pair_neighbours(schedule_1f1b(1, 3, 4)),
      testing::ElementsAre(StageTask{true, 0, 2}, backward(0), forward(2),
                           backward(1), forward(3), StageTask{false, 2, 2}));
}

TEST(PairNeighbours, TheOddOneIsNextToTheTurns) {
  EXPECT_THAT(
      pair_neighbours(schedule_1f1b(0, 3, 4)),
      testing::ElementsAre(StageTask{true, 0, 2}, forward(2), backward(0),
                           forward(3), backward(1), StageTask{false, 2, 2}));
}

TEST(PairNeighbours, TheLastStageHasNone) {
  const std::vector<StageTask> tasks = schedule_1f1b(3, 4, 8);
  EXPECT_EQ(pair_neighbours(tasks), tasks);
  EXPECT_EQ(most_together(tasks), 1);
  EXPECT_TRUE(pair_neighbours({}).empty());
}

std::vector<StageTask> tasks_of(int64_t stage, int64_t stages,
                                int64_t micro_batches, bool paired) {
  const auto tasks = schedule_1f1b(stage, stages, micro_batches);
  return paired ? pair_neighbours(tasks) : tasks;
}

// Runs all stages' lists against each other: a forward needs that of the
// previous stage, a backward that of the next one. There must be no deadlock.
bool can_be_run(int64_t stages, int64_t micro_batches, bool paired) {
  std::vector<std::vector<StageTask>> lists;
  for (int64_t s = 0; s < stages; ++s)
    lists.push_back(tasks_of(s, stages, micro_batches, paired));
  std::vector<size_t> at(lists.size(), 0);
  std::set<std::tuple<int64_t, bool, int64_t>> done;
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t s = 0; s < stages; ++s) {
      const auto i = static_cast<size_t>(s);
      if (at[i] == lists[i].size()) continue;
      const StageTask task = lists[i][at[i]];
      const int64_t other = task.forward ? s - 1 : s + 1;
      const int64_t last = task.micro_batch + task.count - 1;
      const bool ready = other < 0 || other == stages ||
                         done.contains({other, task.forward, last});
      if (!ready) continue;
      for (int64_t m = task.micro_batch; m <= last; ++m)
        done.insert({s, task.forward, m});
      ++at[i];
      moved = true;
    }
  }
  return std::cmp_equal(done.size(), 2 * stages * micro_batches);
}

TEST(Schedule1f1b, NothingIsStuckAndNothingIsLeftOut) {
  for (const int64_t stages : {1, 2, 3, 4, 7, 8})
    for (const int64_t micro_batches : {0, 1, 2, 3, 8, 13})
      for (const bool paired : {false, true})
        EXPECT_TRUE(can_be_run(stages, micro_batches, paired))
            << stages << " stages, " << micro_batches << " micro-batches";
}

TEST(Schedule1f1b, HoldsNoMoreThanItSays) {
  for (const int64_t stages : {1, 2, 4, 7})
    for (const int64_t micro_batches : {1, 2, 3, 8, 13})
      for (int64_t s = 0; s < stages; ++s)
        for (const bool paired : {false, true}) {
          int64_t held = 0, most = 0;
          for (const StageTask& task :
               tasks_of(s, stages, micro_batches, paired)) {
            held += task.forward ? task.count : -task.count;
            most = std::max(most, held);
          }
          EXPECT_EQ(held, 0);
          EXPECT_EQ(most, most_in_flight(s, stages, micro_batches));
        }
}

}  // namespace
}  // namespace canzona::train::schedule_1f1b_test

#include "canzona/train/schedule_1f1b.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

namespace canzona {
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

// Runs all stages' lists against each other: a forward needs the one of the
// stage before, a backward the one of the stage behind. Nothing may be stuck.
bool can_be_run(int64_t stages, int64_t micro_batches) {
  std::vector<std::vector<StageTask>> lists;
  for (int64_t s = 0; s < stages; ++s)
    lists.push_back(schedule_1f1b(s, stages, micro_batches));
  std::vector<size_t> at(lists.size(), 0);
  std::set<std::tuple<int64_t, bool, int64_t>> done;
  for (bool moved = true; moved;) {
    moved = false;
    for (int64_t s = 0; s < stages; ++s) {
      const auto i = static_cast<size_t>(s);
      if (at[i] == lists[i].size()) continue;
      const StageTask task = lists[i][at[i]];
      const int64_t other = task.forward ? s - 1 : s + 1;
      const bool ready = other < 0 || other == stages ||
                         done.contains({other, task.forward, task.micro_batch});
      if (!ready) continue;
      done.insert({s, task.forward, task.micro_batch});
      ++at[i];
      moved = true;
    }
  }
  return std::cmp_equal(done.size(), 2 * stages * micro_batches);
}

TEST(Schedule1f1b, NothingIsStuckAndNothingIsLeftOut) {
  for (const int64_t stages : {1, 2, 3, 4, 7, 8})
    for (const int64_t micro_batches : {0, 1, 2, 3, 8, 13})
      EXPECT_TRUE(can_be_run(stages, micro_batches))
          << stages << " stages, " << micro_batches << " micro-batches";
}

TEST(Schedule1f1b, HoldsNoMoreThanItSays) {
  for (const int64_t stages : {1, 2, 4, 7})
    for (const int64_t micro_batches : {1, 2, 3, 8, 13})
      for (int64_t s = 0; s < stages; ++s) {
        int64_t held = 0, most = 0;
        for (const StageTask& task : schedule_1f1b(s, stages, micro_batches)) {
          held += task.forward ? 1 : -1;
          most = std::max(most, held);
        }
        EXPECT_EQ(held, 0);
        EXPECT_EQ(most, most_in_flight(s, stages, micro_batches));
      }
}

}  // namespace
}  // namespace canzona

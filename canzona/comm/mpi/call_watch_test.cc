#include "canzona/comm/mpi/process_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace canzona::comm {
namespace {

using std::chrono::milliseconds;

// A watch whose give_up can be awaited.
struct WatchTrial {
  std::atomic<bool> has_ended = false;
  std::promise<milliseconds> gave_up;
  CallWatch watch{
      {.peer_has_ended = [this] { return has_ended.load(); },
       .give_up = [this](milliseconds time) { gave_up.set_value(time); }},
      {.tick = milliseconds(1), .ticks_after_end = 20, .ticks = 1000000}};
};

TEST(CallWatch, GivesUpACallThatLastsAfterAPeerHasEnded) {
  WatchTrial trial;
  trial.has_ended = true;
  const CallWatch::Call call(trial.watch);
  EXPECT_EQ(trial.gave_up.get_future().get(), milliseconds(20));
}

TEST(CallWatch, GivesUpACallThatLastsForTheLongerTime) {
  std::promise<milliseconds> gave_up;
  CallWatch watch(
      {.peer_has_ended = [] { return false; },
       .give_up = [&](milliseconds time) { gave_up.set_value(time); }},
      {.tick = milliseconds(1), .ticks_after_end = 2, .ticks = 30});
  const CallWatch::Call call(watch);
  EXPECT_EQ(gave_up.get_future().get(), milliseconds(30));
}

TEST(CallWatch, GivesUpOneCallAmongManyThatReturn) {
  WatchTrial trial;
  trial.has_ended = true;
  const CallWatch::Call stuck(trial.watch);
  std::atomic<bool> is_over = false;
  std::thread others([&] {
    while (!is_over) const CallWatch::Call call(trial.watch);
  });
  EXPECT_EQ(trial.gave_up.get_future().get(), milliseconds(20));
  is_over = true;
  others.join();
}

TEST(CallEras, CountACallThatLasts) {
  CallEras eras;
  eras.tick();
  const unsigned call = eras.begin();
  EXPECT_EQ(eras.tick(), 0);  // it may just have begun
  EXPECT_EQ(eras.tick(), 1);
  EXPECT_EQ(eras.tick(), 2);
  eras.end(call);
  EXPECT_EQ(eras.tick(), 0);
}

// Any number of overlapping calls is fine.
TEST(CallEras, LetCallsBeThatReturn) {
  CallEras eras;
  unsigned last = eras.begin();
  for (int i = 0; i < 100; ++i) {
    const unsigned next = eras.begin();
    eras.end(last);
    last = next;
    EXPECT_LE(eras.tick(), 1) << i;
  }
}

}  // namespace
}  // namespace canzona::comm

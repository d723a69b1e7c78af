// What a courier's callers wait for. Ranks are threads that tell each other
// when to come.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <stdexcept>
#include <string>

#include "canzona/base/error.h"
#include "canzona/comm/courier.h"
#include "canzona/comm/thread/run_ranks.h"

namespace canzona {
namespace {

using std::chrono_literals::operator""ms;
using testing::HasSubstr;

std::string thrown_by(Work& work) {
  try {
    work.wait();
  } catch (const PeerLost& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Courier, PostingWaitsWhileTheQueueIsFull) {
  std::barrier may_come(2);
  run_ranks(2, [&](Communicator& world) {
    if (world.rank() == 1) {
      may_come.arrive_and_wait();
      for (int i = 0; i < 3; ++i) world.barrier();
      return;
    }
    Courier courier(world, 2);
    courier.barrier();
    Work second = courier.barrier();
    EXPECT_FALSE(second.done());
    may_come.arrive_and_wait();
    Work third = courier.barrier();
    // There was room for it only once the first had ended.
    third.wait();
    EXPECT_TRUE(second.done());
  });
}

TEST(Courier, KeepsAnErrorForItsWorkAndAllLater) {
  const auto run = [](Communicator& world) {
    if (world.rank() == 1) {
      world.barrier();
      throw std::runtime_error("rank 1 has had enough");
    }
    Courier courier(world, 4);
    courier.barrier();
    Work second = courier.barrier({.label = "second"});
    Work third = courier.barrier({.label = "third"});
    EXPECT_THAT(thrown_by(third), HasSubstr("'second'"));
    EXPECT_EQ(thrown_by(second), thrown_by(third));
    EXPECT_THAT(thrown_by(second), HasSubstr("rank 1 has had enough"));
    EXPECT_EQ(world.traffic().of(Operation::kBarrier).calls, 1);
  };
  EXPECT_THROW(run_ranks(2, run), std::runtime_error);
}

TEST(Courier, WaitingHasADeadlineOfItsOwn) {
  std::barrier may_come(2);
  run_ranks(2, [&](Communicator& world) {
    if (world.rank() == 1) {
      may_come.arrive_and_wait();
      return world.barrier();
    }
    Courier courier(world, 4);
    Work work = courier.barrier({.label = "slow"});
    EXPECT_THROW(work.wait(1ms), PeerLost);
    may_come.arrive_and_wait();
    work.wait();
  });
}

}  // namespace
}  // namespace canzona

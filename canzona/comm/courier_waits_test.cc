// Tests of what a courier's callers wait for. Ranks are threads that tell each
// other when to arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/courier.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"

namespace canzona::comm::courier_waits_test {
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
    // There was room for it only after the first had ended.
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

// Rank 1 is in the middle of an operation that rank 0 will never begin.
TEST(Courier, KeepsWhatATaskThrowsAndWakesTheOtherRanks) {
  std::string said_by_other;
  const auto run = [&](Communicator& world) {
    if (world.rank() == 1) {
      world.barrier();
      try {
        world.barrier();
      } catch (const PeerLost& error) {
        said_by_other = error.what();
      }
      return;
    }
    Courier courier(world, 4);
    const auto fail = [](Communicator& group, const Call& call) {
      group.barrier();
      throw NumericalError(cat(call.label, " is not finite"));
    };
    Work first = courier.run("task", fail, {.label = "layers.3"});
    Work second = courier.barrier();
    EXPECT_THROW(second.wait(), NumericalError);
    first.wait();
  };
  EXPECT_THROW(run_ranks(2, run), NumericalError);
  EXPECT_THAT(said_by_other,
              HasSubstr("rank 0: task 'layers.3': layers.3 is not finite"));
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

TEST(Courier, CountsTheTimeOfItsOperations) {
  run_ranks(1, [&](Communicator& world) {
    Courier courier(world, 4);
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(courier.busy().count(), 0);
    std::chrono::nanoseconds inside{0};
    const auto work = [&inside](Communicator&, const Call&) {
      const auto begin = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(20ms);
      inside = std::chrono::steady_clock::now() - begin;
    };
    courier.run("work", work).wait();
    const auto busy = courier.busy();
    EXPECT_GE(busy, inside);
    std::this_thread::sleep_for(5ms);
    EXPECT_EQ(courier.busy(), busy);
  });
}

TEST(Courier, CountsNoTimeInWhichABodyPauses) {
  run_ranks(1, [&](Communicator& world) {
    Courier courier(world, 4);
    const auto rest = [&](Communicator&, const Call&) {
      const Courier::Pause pause(courier);
      std::this_thread::sleep_for(20ms);
    };
    const auto begin = std::chrono::steady_clock::now();
    courier.run("rest", rest).wait();
    courier.barrier().wait();
    const auto passed = std::chrono::steady_clock::now() - begin;
    EXPECT_LE(courier.busy(), passed - 20ms);
  });
}

TEST(Courier, ShowsItsOperationsOnATrack) {
  Trace trace;
  run_ranks(2, [&](Communicator& world) {
    Track* track = trace.add_track(world.rank(), "communication");
    std::vector<int64_t> data = {1};
    const std::string longer(2 * Label::kCapacity, 'x');
    Courier courier(world, 2, track);
    for (const std::string& label : {std::string("k+1"), longer})
      courier.all_reduce(Reduction::kInt64Sum, bytes_of(data),
                         {.label = trace.keep(label)});
    courier.barrier().wait();
    EXPECT_GT(courier.busy().count(), 0);
  });
  const auto whole = nlohmann::json::parse(trace.json());
  std::vector<std::string> spans;
  for (const auto& event : whole["traceEvents"])
    if (event["ph"] == "X" && event["pid"] == 1)
      spans.push_back(event["name"].get<std::string>() + " " +
                      event["args"].value("label", "none"));
  const std::string x(2 * Label::kCapacity, 'x');
  EXPECT_THAT(spans, testing::ElementsAre("all_reduce k+1", "all_reduce " + x,
                                          "barrier none"));
}

}  // namespace
}  // namespace canzona::comm::courier_waits_test

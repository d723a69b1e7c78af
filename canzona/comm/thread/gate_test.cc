// Orders of operations, created by holding some of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/courier.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/comm/thread/test_gate.h"

namespace canzona::comm::gate_test {
namespace {

using Passage = TestGate::Passage;

RunOptions with(Gate& gate) {
  RunOptions options;
  options.world.gate = &gate;
  return options;
}

TEST(Gate, HoldsOneGatherBackWhileThoseBeforeItFinish) {
  TestGate gate;
  gate.hold([](const Passage& p) {
    return p.group == "gather" && p.operation == Operation::kAllGather &&
           p.label == "module 2" && p.world_rank == 0;
  });
  std::latch seen(2);
  run_ranks(2, with(gate), [&](Communicator& world) {
    const auto group = world.split(0, world.rank(), "gather");
    std::vector<std::vector<int64_t>> slots(4, std::vector<int64_t>(2, -1));
    const std::vector<int64_t> own = {world.rank()}, bytes = {8, 8};
    Courier courier(*group, 8);
    std::vector<Work> gathers;
    for (size_t m = 0; m < slots.size(); ++m) {
      const std::string label = "module " + std::to_string(m);
      gathers.push_back(courier.all_gather_v(
          bytes_of(own), bytes, bytes_of(slots[m]), {.label = label}));
    }
    gathers[0].wait();
    gathers[1].wait();
    EXPECT_THAT(slots[1], testing::ElementsAre(0, 1));
    gate.wait_until_held(1);
    EXPECT_FALSE(gathers[2].done());
    EXPECT_EQ(gate.num_held(), 1);
    seen.arrive_and_wait();
    gate.release();
    gathers[3].wait();
    EXPECT_THAT(slots[3], testing::ElementsAre(0, 1));
    EXPECT_EQ(gate.num_held(), 0);
  });
}

// A held operation has posted nothing: its peer still lacks the message.
TEST(Gate, HoldsBeforeTheFirstMessage) {
  TestGate gate;
  gate.hold([](const Passage& p) { return p.world_rank == 1; });
  run_ranks(2, with(gate), [&](Communicator& world) {
    std::vector<std::byte> data(1);
    if (world.rank() == 1) return world.broadcast(1, data);
    Courier courier(world, 1);
    Work work = courier.broadcast(1, data);
    gate.wait_until_held(1);
    EXPECT_FALSE(work.done());
    gate.release();
    work.wait();
  });
}

TEST(Gate, ANewPredicateFreesWhoDoesNotFitIt) {
  TestGate gate;
  gate.hold([](const Passage&) { return true; });
  run_ranks(3, with(gate), [&](Communicator& world) {
    if (world.rank() == 2) {
      gate.wait_until_held(2);
      gate.hold([](const Passage& p) { return p.label == "late"; });
      world.barrier({.label = "early"});
      gate.wait_until_held(2);
      gate.release();
      return world.barrier({.label = "late"});
    }
    world.barrier({.label = "early"});
    world.barrier({.label = "late"});
  });
}

TEST(Gate, AnErrorWakesWhoIsHeld) {
  TestGate gate;
  gate.hold([](const Passage& p) { return p.label == "held"; });
  std::mutex mutex;
  std::vector<std::string> said;
  const auto run = [&](Communicator& world) {
    if (world.rank() == 2) {
      gate.wait_until_held(2);
      throw NumericalError("not finite");
    }
    try {
      world.barrier({.label = "held"});
    } catch (const PeerLost& error) {
      const std::lock_guard lock(mutex);
      said.emplace_back(error.what());
    }
  };
  EXPECT_THROW(run_ranks(3, with(gate), run), NumericalError);
  EXPECT_THAT(said, testing::SizeIs(2));
  EXPECT_THAT(said,
              testing::Each(testing::AllOf(testing::HasSubstr("'held'"),
                                           testing::HasSubstr("not finite"))));
}

TEST(Gate, WaitingForTheHeldEndsWithTheWorld) {
  TestGate gate;
  const auto run = [&](Communicator& world) {
    if (world.rank() == 1) throw NumericalError("not finite");
    EXPECT_THROW(gate.wait_until_held(1), PeerLost);
  };
  EXPECT_THROW(run_ranks(2, with(gate), run), NumericalError);
}

}  // namespace
}  // namespace canzona::comm::gate_test

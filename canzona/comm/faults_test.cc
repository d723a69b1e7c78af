// Ranks that fail, leave or never arrive: every rank gets an error, and none
// hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/courier.h"
#include "canzona/comm/test_host_ops.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"

namespace canzona::comm::comm_faults_test {
namespace {

using std::chrono_literals::operator""ms;
using testing::AllOf;
using testing::HasSubstr;

template <class Expected>
std::string message_of(int num_ranks, const RunOptions& options,
                       const RankFunction& function) {
  try {
    run_ranks(num_ranks, options, function);
  } catch (const Expected& error) {
    return error.what();
  }
  return "nothing thrown";
}

// Returns the text of PeerLost on this rank.
template <class Function>
std::string lost(Function function) {
  try {
    function();
  } catch (const PeerLost& error) {
    return error.what();
  }
  return "nothing lost";
}

void add_one(Communicator& world, const Call& call = {}) {
  std::vector<float> data(10, 1);
  world.all_reduce(Reduction::kFp32Sum, bytes_of(data), call);
}

TEST(Faults, ARankThatThrowsWakesTheOthersWithItsReason) {
  std::array<std::string, 4> said;
  const auto fail = [&](Communicator& world) {
    if (world.rank() == 2) throw std::runtime_error("no more paper");
    said[static_cast<size_t>(world.rank())] =
        lost([&] { add_one(world, {.label = "layers.3"}); });
  };
  EXPECT_EQ(message_of<std::runtime_error>(4, {}, fail), "no more paper");
  for (size_t rank : {0, 1, 3})
    EXPECT_THAT(said[rank], AllOf(HasSubstr("all_reduce #1 'layers.3'"),
                                  HasSubstr("rank 2 failed: no more paper")));
}

TEST(Faults, TheRootCauseIsToldAndNotWhatFollowed) {
  for (int round = 0; round < 20; ++round) {
    const auto fail = [](Communicator& world) {
      if (world.rank() == 6) throw NumericalError("not finite");
      add_one(world);
    };
    EXPECT_EQ(message_of<NumericalError>(7, {}, fail), "not finite");
  }
}

TEST(Faults, ARankThatReturnsEarlyIsNamed) {
  const auto leave = [](Communicator& world) {
    if (world.rank() != 1) add_one(world);
  };
  EXPECT_THAT(message_of<PeerLost>(4, {}, leave), HasSubstr("rank 1 has left"));
}

TEST(Faults, AGroupThatEndsEarlyIsNoticed) {
  const auto leave = [](Communicator& world) {
    auto group = world.split(world.rank() % 2, 0, "half");
    if (world.rank() == 3) group.reset();
    if (group != nullptr) group->barrier();
  };
  EXPECT_THAT(message_of<PeerLost>(4, {}, leave),
              AllOf(HasSubstr("of half: barrier"), HasSubstr("has left")));
}

TEST(Faults, ARankThatNeverComesIsNamedAfterTheDeadline) {
  std::mutex mutex;
  std::condition_variable changed;
  int num_given_up = 0;
  const auto stay_away = [&](Communicator& world) {
    const Call call = {.label = "layers.3 gather 7", .deadline = 50ms};
    std::string said;
    if (world.rank() != 2) said = lost([&] { add_one(world, call); });
    std::unique_lock lock(mutex);
    if (world.rank() != 2) ++num_given_up;
    changed.notify_all();
    changed.wait(lock, [&] { return num_given_up == 3; });
    lock.unlock();
    if (world.rank() == 2) said = lost([&] { add_one(world); });
    EXPECT_THAT(said, AllOf(HasSubstr("all_reduce #1"),
                            HasSubstr("rank 2 did not arrive within 50")));
    if (!said.empty()) throw PeerLost(said);
  };
  EXPECT_THAT(message_of<PeerLost>(4, {}, stay_away),
              HasSubstr("'layers.3 gather 7': rank 2 did not arrive"));
}

TEST(Faults, AnAbortReachesEveryGroupAndStays) {
  std::barrier all_split(4);
  run_ranks(4, [&](Communicator& world) {
    auto half = world.split(world.rank() / 2, 0, "half");
    all_split.arrive_and_wait();
    if (world.rank() == 3) world.abort("the disk is full");
    for (int times = 0; times < 2; ++times) {
      EXPECT_THAT(lost([&] {
                    while (true) half->barrier();
                  }),
                  HasSubstr("the disk is full"));
      EXPECT_THAT(lost([&] { world.barrier(); }),
                  HasSubstr("the disk is full"));
    }
    world.abort("later");
    EXPECT_THAT(lost([&] { world.barrier(); }), HasSubstr("the disk is full"));
  });
}

// A rank that posted a message that nobody will take gets its buffer back.
TEST(Faults, BuffersAreFreeOnceAnOperationHasThrown) {
  for (int round = 0; round < 50; ++round) {
    const auto fail = [&](Communicator& world) {
      for (int i = 0; i < 5; ++i) {
        if (world.rank() == 3 && i == round % 5) throw NumericalError("x");
        std::vector<float> data(50000, 1);
        world.all_reduce(Reduction::kFp32Sum, bytes_of(data));
      }
    };
    EXPECT_EQ(message_of<NumericalError>(4, {}, fail), "x");
  }
}

// Fails like the copy of a GPU that is gone.
class FailingOps final : public HostOps {
 public:
  void copy(std::byte*, const std::byte*, int64_t) const override {
    throw NumericalError("the device is gone");
  }
};

// The sender waits until nobody reads its buffer: a copy that throws must not
// leave it waiting past every deadline and abort.
TEST(Faults, ACopyThatThrowsWhileAMessageIsTakenFreesTheSender) {
  const FailingOps failing;
  std::string said;
  const auto take = [&](Communicator& world) {
    const auto group = world.split(0, world.rank(), "group", {},
                                   world.rank() == 1 ? &failing : nullptr);
    std::vector<std::byte> data(8);
    const auto pass = [&] { group->broadcast(0, data, {.label = "layers.3"}); };
    if (world.rank() == 1) return pass();
    said = lost(pass);
  };
  EXPECT_EQ(message_of<NumericalError>(2, {}, take), "the device is gone");
  EXPECT_THAT(said, AllOf(HasSubstr("rank 1 of group: broadcast #1"),
                          HasSubstr("'layers.3': the device is gone")));
}

// Gathers pieces of eight bytes; rank 1 has a wrong count.
class MiscountedGather {
 public:
  MiscountedGather(Communicator& group, int world_rank)
      : counts_{8, world_rank == 1 ? 16 : 8}, courier_(group, 2) {
    work_ = courier_.all_gather_v(own_, counts_, all_, {.label = "layers.3"});
  }
  void wait() { work_.wait(); }

 private:
  std::vector<int64_t> counts_;
  std::vector<std::byte> own_ = std::vector<std::byte>(8);
  std::vector<std::byte> all_ = std::vector<std::byte>(16);
  Work work_;
  Courier courier_;
};

constexpr const char* kMiscounted =
    "all_gather_v 'layers.3': counts are negative or above the buffer's 16";

TEST(Faults, ACourierThatFailsBeforeItsOperationTellsTheOthers) {
  std::string said;
  const auto misuse = [&](Communicator& world) {
    MiscountedGather gather(world, world.rank());
    if (world.rank() == 1) return gather.wait();
    said = lost([&] { gather.wait(); });
  };
  const RunOptions options = {.communicator = {.deadline = 20000ms}};
  EXPECT_EQ(message_of<UsageError>(2, options, misuse),
            std::string("rank 1 of world: ") + kMiscounted);
  EXPECT_THAT(said, AllOf(HasSubstr("given up: rank 1 of world: "),
                          HasSubstr(kMiscounted)));
}

// Rank 1 waits elsewhere, for rank 0, which waits for the courier of rank 1.
TEST(Faults, ARankWhoseCourierFailsEndsWithThatErrorWhereverItWaits) {
  std::string said;
  const auto misuse = [&](Communicator& world) {
    const auto group = world.split(0, world.rank(), "group");
    MiscountedGather gather(*group, world.rank());
    if (world.rank() == 1) return world.barrier();
    said = lost([&] { gather.wait(); });
  };
  EXPECT_EQ(message_of<UsageError>(2, {}, misuse),
            std::string("rank 1 of group: ") + kMiscounted);
  EXPECT_THAT(said, HasSubstr(kMiscounted));
}

TEST(Faults, D1MessagesOfDifferentSizeAreRefusedWithoutChecks) {
  const auto differ = [](Communicator& world) {
    std::vector<std::byte> data(world.rank() == 0 ? 8 : 12);
    world.broadcast(0, data);
  };
  EXPECT_THAT(message_of<UsageError>(2, {}, differ),
              HasSubstr("rank 0 sent 8 bytes where rank 1 expects 12"));
}

TEST(Faults, ASegmentOfNothingIsRefused) {
  const RunOptions nothing = {.communicator = {.segment_bytes = 0}};
  EXPECT_THROW(run_ranks(1, nothing, [](Communicator&) {}), UsageError);
}

const RunOptions kChecked = {.communicator = {.check_collectives = true}};

TEST(Checks, LetEqualCallsPass) {
  run_ranks(4, kChecked, [](Communicator& world) {
    add_one(world, {.label = "a"});
    std::vector<int64_t> own(1), data(4);
    world.all_gather_v(bytes_of(own), std::vector<int64_t>(4, 8),
                       bytes_of(data));
    const std::vector<int64_t> one(4, 1);
    std::vector<std::byte> in(4), out(4);
    const std::vector<int64_t> places = {0, 1, 2, 3};
    world.all_to_all_v({out, one, places}, {in, one, places});
    world.split(world.rank() % 2, 0, "half")->barrier();
    EXPECT_EQ(world.traffic().of(Operation::kAllToAll).sent, 3);
    EXPECT_EQ(world.traffic().of(Operation::kAllGather).sent, 24);
  });
}

// Ranks are named by their numbers in the world, whatever they are in a group.
TEST(Checks, NameRanksOfAGroupAsTheWorldDoes) {
  EXPECT_THAT(message_of<UsageError>(4, kChecked,
                                     [](Communicator& world) {
                                       const auto half = world.split(
                                           world.rank() % 2, 0, "half");
                                       if (world.rank() == 2)
                                         return half->barrier();
                                       add_one(*half, {.label = "sum"});
                                     }),
              AllOf(HasSubstr("rank 0 calls all_reduce"),
                    HasSubstr("rank 2 calls barrier")));
}

TEST(Checks, D1NameBothSidesOfAWrongOrder) {
  const auto differ = [](Communicator& world) {
    if (world.rank() == 1) return world.barrier({.label = "end"});
    add_one(world, {.label = "sum"});
  };
  EXPECT_THAT(message_of<UsageError>(2, kChecked, differ),
              AllOf(HasSubstr("all_reduce #1 'sum' (fp32 sum, size 40"),
                    HasSubstr("barrier #1 'end'")));
}

TEST(Checks, D1FindDifferentLabelsCountsAndPairs) {
  const auto labels = [](Communicator& world) {
    world.barrier({.label = world.rank() == 0 ? "a" : "b"});
  };
  const auto counts = [](Communicator& world) {
    // Each rank's own count is right.
    const std::vector<int64_t> one = {1, 1, 2}, two = {1, 2, 1};
    std::vector<std::byte> own(1), all(4);
    if (world.rank() == 0) world.all_gather_v(own, one, all);
    if (world.rank() == 1) world.all_gather_v(own, one, all);
    if (world.rank() == 2) world.all_gather_v(own, two, all);
  };
  const auto pairs = [](Communicator& world) {
    const std::vector<int64_t> even = {1, 1}, more = {2, 1}, at = {0, 2};
    std::vector<std::byte> out(3), in(3);
    world.all_to_all_v({out, even, at},
                       {in, world.rank() == 1 ? more : even, at});
  };
  EXPECT_THAT(message_of<UsageError>(2, kChecked, labels), HasSubstr("'b'"));
  EXPECT_THAT(message_of<UsageError>(3, kChecked, counts),
              HasSubstr("hash of counts"));
  EXPECT_THAT(message_of<UsageError>(2, kChecked, pairs),
              AllOf(HasSubstr("(1 bytes there, 1 bytes back)"),
                    HasSubstr("(1 bytes there, 2 bytes back)")));
}

// Returns the errors of all ranks for a call in which one does something else.
std::array<std::string, 4> said_by_all(const RunOptions& options,
                                       const RankFunction& function) {
  std::array<std::string, 4> said;
  try {
    run_ranks(4, options, [&](Communicator& world) {
      try {
        function(world);
      } catch (const Error& error) {
        said[static_cast<size_t>(world.rank())] = error.what();
        throw;
      }
    });
  } catch (const Error&) {
  }
  return said;
}

using Deed = std::function<void(Communicator&)>;
std::map<std::string, Deed> deeds_of_one() {
  return {{"other operation", [](Communicator& w) { w.barrier(); }},
          {"other shape",
           [](Communicator& w) {
             std::vector<float> more(11);
             w.all_reduce(Reduction::kFp32Sum, bytes_of(more));
           }},
          {"other type",
           [](Communicator& w) {
             std::vector<int64_t> numbers(5);
             w.all_reduce(Reduction::kInt64Sum, bytes_of(numbers));
           }},
          {"skipped call", [](Communicator&) {}}};
}

// Rank 2 calls something other than an all-reduce, then all go on.
RankFunction one_differs(const Deed& deed) {
  return [deed](Communicator& world) {
    if (world.rank() == 2)
      deed(world);
    else
      add_one(world);
    add_one(world, {.label = "next"});
    std::vector<float> sum(10, 1);
    world.all_reduce(Reduction::kFp32Sum, bytes_of(sum));
    for (const float value : sum) EXPECT_EQ(value, 4);
  };
}

TEST(Checks, D1EveryRankNamesOperationsAndTheRankWhateverOneDoes) {
  for (const auto& [name, deed] : deeds_of_one()) {
    SCOPED_TRACE(name);
    const auto said = said_by_all(kChecked, one_differs(deed));
    for (const std::string& words : said) {
      EXPECT_THAT(words, HasSubstr("all_reduce"));
      EXPECT_THAT(words, HasSubstr("rank 2"));
    }
  }
}

TEST(Faults, D1WithoutChecksEveryRankEndsAndNobodyGetsAWrongSum) {
  const RunOptions soon = {.communicator = {.deadline = 500ms}};
  for (const auto& [name, deed] : deeds_of_one()) {
    SCOPED_TRACE(name);
    const auto said = said_by_all(soon, one_differs(deed));
    // The rank that skipped a call finishes before the others.
    for (const size_t rank : {0, 1, 3}) EXPECT_NE(said[rank], "");
  }
}

TEST(FlightRecord, TellsWhatWasUnderWay) {
  std::mutex mutex;
  std::string told;
  RunOptions options;
  options.communicator.clock = [] { return 42; };
  options.communicator.flight_records = 2;
  options.communicator.on_failure = [&](const FlightRecord& record) {
    std::lock_guard lock(mutex);
    std::ostringstream out;
    record.write(out);
    told = out.str();
  };
  const auto leave = [](Communicator& world) {
    world.barrier({.label = "first"});
    world.barrier({.label = "second"});
    if (world.rank() == 0) add_one(world, {.label = "third"});
  };
  message_of<PeerLost>(2, options, leave);
  EXPECT_EQ(told,
            R"({"rank":0,"group":"world","operation":"barrier","sequence":2,)"
            R"("label":"second","state":"done","sent":0,"began_ns":42,)"
            R"("ended_ns":42})"
            "\n"
            R"({"rank":0,"group":"world","operation":"all_reduce",)"
            R"("sequence":3,"label":"third","state":"failed","sent":20,)"
            R"("began_ns":42,"ended_ns":42})"
            "\n");
}

TEST(Faults, ANegativeNumberOfRanksPerNodeIsRefused) {
  EXPECT_THAT(message_of<UsageError>(1, {{.ranks_per_node = -1}, {}},
                                     [](Communicator&) {}),
              HasSubstr("ranks_per_node is -1"));
}

}  // namespace
}  // namespace canzona::comm::comm_faults_test

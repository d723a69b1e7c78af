#include "canzona/comm/tcp/tcp_session.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <thread>
#include <vector>

#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/test_ranks.h"
#include "canzona/comm/thread/run_ranks.h"

namespace canzona::comm::tcp_session_test {
namespace {

using testing::HasSubstr;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

std::string sum_digest(Communicator& world) {
  std::vector<float> data = test_piece(world.rank(), 200'000);
  world.all_reduce(Reduction::kFp32Sum, bytes_of(data));
  std::vector<float> rounded = test_piece(world.rank(), 777);
  world.all_reduce(Reduction::kFp32SumOfBf16, bytes_of(rounded));
  data.insert(data.end(), rounded.begin(), rounded.end());
  return sha256_hex({reinterpret_cast<const char*>(data.data()),
                     data.size() * sizeof(float)});
}

TEST(TcpSession, SumsHaveTheBitsOfThreads) {
  for (const int ranks : {1, 2, 4, 7, 8}) {
    std::vector<std::string> sockets(static_cast<size_t>(ranks));
    std::vector<std::string> threads(sockets.size());
    run_test_ranks(ranks, [&](Communicator& world) {
      sockets[static_cast<size_t>(world.rank())] = sum_digest(world);
    });
    run_ranks(ranks, [&](Communicator& world) {
      threads[static_cast<size_t>(world.rank())] = sum_digest(world);
    });
    EXPECT_EQ(sockets, threads) << ranks << " ranks";
  }
}

TEST(TcpSession, GroupsAreFoundedSideBySideAndAgain) {
  run_test_ranks(4, [](Communicator& world) {
    for (int round = 0; round < 3; ++round) {
      const auto rows = world.split(world.rank() / 2, world.rank(), "row");
      const auto columns =
          world.split(world.rank() % 2, world.rank(), "column");
      std::vector<int64_t> sum = {world.rank() + 1};
      rows->all_reduce(Reduction::kInt64Sum, bytes_of(sum));
      columns->all_reduce(Reduction::kInt64Sum, bytes_of(sum));
      EXPECT_EQ(sum.front(), 10);
    }
  });
}

// Meetings that fail.

struct Meeting {
  std::shared_ptr<Socket> listener =
      std::make_shared<Socket>(listen_on({"127.0.0.1", 0}));
  Endpoint endpoint = own_endpoint(*listener);

  TcpOptions options(int rank, int num_ranks, const std::string& token,
                     std::chrono::nanoseconds time = 20s) const {
    return {.meeting = endpoint,
            .rank = rank,
            .num_ranks = num_ranks,
            .token = token,
            .time = time,
            .listener = rank == 0 ? listener : nullptr};
  }
};

// Returns the error of the session, prefixed with its kind; "" if it succeeds.
std::string error_of(const TcpOptions& options) {
  try {
    TcpSession session(options);
    session.finish(20s);
    return "";
  } catch (const UsageError& error) {
    return cat("usage: ", error.what());
  } catch (const PeerLost& error) {
    return cat("lost: ", error.what());
  }
}

std::future<std::string> come(const TcpOptions& options) {
  return std::async(std::launch::async, error_of, options);
}

TEST(TcpSession, R10NamesRanksThatNeverCome) {
  const Meeting meeting;
  auto one = come(meeting.options(1, 4, "job"));
  auto zero = come(meeting.options(0, 4, "job", 300ms));
  const std::string lost = zero.get();
  EXPECT_THAT(lost, HasSubstr("lost: ranks 2, 3 did not connect"));
  EXPECT_THAT(lost, HasSubstr("reached from its own machine only"));
  EXPECT_THAT(one.get(), HasSubstr("lost: rank 0 at 127.0.0.1"));
}

TEST(TcpSession, R10NamesRankZeroIfItNeverComes) {
  Meeting meeting;
  meeting.listener.reset();
  const std::string lost = error_of(meeting.options(1, 2, "job", 200ms));
  EXPECT_THAT(lost,
              HasSubstr("lost: rank 0 cannot be reached: no connection with"));
  EXPECT_THAT(lost, HasSubstr("listens at another address of its machine"));
}

TEST(TcpSession, R10TurnsASecondRankOfTheSameNumberAway) {
  const Meeting meeting;
  auto zero = come(meeting.options(0, 3, "job"));
  auto one = come(meeting.options(1, 3, "job"));
  auto twice = come(meeting.options(1, 3, "job"));
  // The last rank arrives when one of the two has been turned away.
  std::string refusal;
  while (refusal.empty())
    for (auto* either : {&one, &twice})
      if (either->wait_for(1ms) == std::future_status::ready) {
        refusal = either->get();
        break;
      }
  EXPECT_THAT(refusal, HasSubstr("usage: rank 1 was turned away"));
  EXPECT_THAT(refusal, HasSubstr("is already connected"));
  EXPECT_EQ(come(meeting.options(2, 3, "job")).get(), "");
  EXPECT_EQ(zero.get(), "");
  EXPECT_EQ((one.valid() ? one : twice).get(), "");
}

TEST(TcpSession, R10ARankThatDiedWhileOthersAreAwaitedMayComeAgain) {
  const Meeting meeting;
  auto zero = come(meeting.options(0, 3, "job"));
  // The ranks are not all connected in time for this one.
  EXPECT_THAT(error_of(meeting.options(1, 3, "job", 200ms)), HasSubstr("lost"));
  auto one = come(meeting.options(1, 3, "job"));
  EXPECT_EQ(error_of(meeting.options(2, 3, "job")), "");
  EXPECT_EQ(one.get(), "");
  EXPECT_EQ(zero.get(), "");
}

TEST(TcpSession, R10TurnsAnotherJobAndAnotherWorldAway) {
  const Meeting meeting;
  auto zero = come(meeting.options(0, 2, "job"));
  EXPECT_THAT(error_of(meeting.options(1, 2, "another")),
              HasSubstr("its token differs"));
  EXPECT_THAT(error_of(meeting.options(1, 3, "job")),
              HasSubstr("expects 3 ranks, rank 0 expects 2"));
  EXPECT_EQ(error_of(meeting.options(1, 2, "job")), "");
  EXPECT_EQ(zero.get(), "");
  EXPECT_THAT(error_of(meeting.options(2, 2, "job")), HasSubstr("0 to 1"));
}

// Four kinds of unrelated clients connect to the meeting point and stay.
TEST(TcpSession, IsNotDisturbedByGarbage) {
  const Meeting meeting;
  const Deadline until = deadline_after(20s);
  std::vector<Socket> strangers;
  const auto say = [&](const std::string& text) {
    strangers.push_back(connect_to(meeting.endpoint, until));
    if (!text.empty())
      send_all(strangers.back(), std::as_bytes(std::span(text)), until);
  };
  say("");
  say("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  say(std::string(100'000, '\0'));
  say("CNZcard1");
  auto zero = come(meeting.options(0, 2, "job"));
  EXPECT_EQ(error_of(meeting.options(1, 2, "job")), "");
  EXPECT_EQ(zero.get(), "");
}

// A process that opens connections, says nothing and stays.
class Strangers {
 public:
  Strangers(const Endpoint& endpoint, int number) {
    std::array<int, 2> ready{};
    if (::pipe(ready.data()) != 0) return;
    child_ = ::fork();
    if (child_ == 0) {
      std::vector<Socket> sockets;
      for (int i = 0; i < number; ++i)
        sockets.push_back(connect_to(endpoint, deadline_after(20s)));
      if (::write(ready[1], "x", 1) == 1) ::pause();
      ::_exit(1);
    }
    ::close(ready[1]);
    char told = 0;
    are_there_ = ::read(ready[0], &told, 1) == 1;
    ::close(ready[0]);
  }
  ~Strangers() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }
  Strangers(const Strangers&) = delete;
  Strangers& operator=(const Strangers&) = delete;
  bool are_there() const { return are_there_; }

 private:
  pid_t child_ = -1;
  bool are_there_ = false;
};

// Lowers the limit of open files while it lives.
class FewFiles {
 public:
  explicit FewFiles(rlim_t number) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit few{number, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &few);
  }
  ~FewFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  FewFiles(const FewFiles&) = delete;
  FewFiles& operator=(const FewFiles&) = delete;

 private:
  rlimit before_{};
};

bool can_open_files(int number) {
  std::vector<Socket> files;  // any descriptor will do
  for (int i = 0; i < number; ++i) {
    files.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!files.back().is_open()) return false;
  }
  return true;
}

TEST(TcpSession, IdleConnectionsLeaveFilesForTheJob) {
  constexpr int kFiles = 256;
  const Meeting meeting;
  const Strangers strangers(meeting.endpoint, kFiles + 50);
  ASSERT_TRUE(strangers.are_there());
  const FewFiles few(kFiles);
  auto zero = come(meeting.options(0, 2, "job"));
  auto one = come(meeting.options(1, 2, "job"));
  bool could_open = true;
  do {
    could_open = can_open_files(kFiles / 4) && could_open;
  } while (zero.wait_for(1ms) != std::future_status::ready);
  EXPECT_TRUE(could_open);
  EXPECT_EQ(zero.get(), "");
  EXPECT_EQ(one.get(), "");
}

TEST(TcpSession, AnErrorOfOneRankReachesAllWithItsReason) {
  try {
    run_test_ranks(4, [](Communicator& world) {
      if (world.rank() == 2) throw UsageError("a mistake of its own");
      try {
        world.barrier();
      } catch (const PeerLost& error) {
        EXPECT_THAT(error.what(), HasSubstr("a mistake of its own"));
        throw;
      }
      ADD_FAILURE() << "the barrier was passed";
    });
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "a mistake of its own");
  }
}

TEST(TcpSession, R7NamesARankThatDoesNotComeToAnOperation) {
  std::promise<void> over;
  std::shared_future<void> end = over.get_future();
  std::atomic<int> num_lost = 0;
  try {
    run_test_ranks(3, {.deadline = 300ms}, [&](Communicator& world) {
      if (world.rank() == 1) return end.wait();
      try {
        world.barrier({.label = "the end of a step"});
      } catch (const PeerLost& error) {
        EXPECT_THAT(error.what(), HasSubstr("the end of a step"));
        EXPECT_THAT(error.what(), HasSubstr("rank 1"));
        if (++num_lost == 2) over.set_value();
        throw;
      }
    });
    FAIL() << "no error";
  } catch (const PeerLost&) {
  }
  EXPECT_EQ(num_lost, 2);
}

// If a process is killed, every other rank learns its number and process.
TEST(TcpSession, R1R4EveryRankLearnsWhoWasKilled) {
  for (const int victim : {0, 1, 3}) {
    const Meeting meeting;
    std::vector<pid_t> children;
    std::array<int, 2> reports{};
    ASSERT_EQ(::pipe(reports.data()), 0);
    for (int rank = 0; rank < 4; ++rank) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child > 0) {
        children.push_back(child);
        continue;
      }
      int status = 1;
      try {
        TcpSession session(meeting.options(rank, 4, "job"));
        Communicator world(session.make_world(), cpu_wire_ops(),
                           {.deadline = 20s}, "world");
        for (int round = 0;; ++round) {
          if (rank == victim && round == 20) ::raise(SIGKILL);
          world.barrier();
        }
      } catch (const PeerLost& error) {
        const std::string text = cat(rank, ": ", error.what(), "\n");
        status = ::write(reports[1], text.data(), text.size()) > 0 ? 4 : 1;
      } catch (...) {
      }
      ::_exit(status);
    }
    ::close(reports[1]);
    for (int rank = 0; rank < 4; ++rank) {
      int status = 0;
      ::waitpid(children[static_cast<size_t>(rank)], &status, 0);
      if (rank == victim) {
        EXPECT_TRUE(WIFSIGNALED(status));
      } else {
        EXPECT_EQ(WEXITSTATUS(status), 4) << "rank " << rank;
      }
    }
    std::string told(1 << 16, '\0');
    told.resize(static_cast<size_t>(
        std::max<ssize_t>(::read(reports[0], told.data(), told.size()), 0)));
    ::close(reports[0]);
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == victim) continue;
      EXPECT_THAT(told, HasSubstr(cat(rank, ": ")));
    }
    EXPECT_THAT(told, HasSubstr(cat("rank ", victim)));
    EXPECT_THAT(
        told, HasSubstr(cat("process ", children[static_cast<size_t>(victim)])))
        << told;
  }
}

}  // namespace
}  // namespace canzona::comm::tcp_session_test

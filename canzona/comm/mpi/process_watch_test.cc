#include "canzona/comm/mpi/process_watch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <thread>

namespace canzona::comm::process_watch_test {
namespace {

// Starts a process that lives until it is killed.
pid_t start_process() {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  return child;
}

bool can_watch() {
  ProcessWatch watch;
  const pid_t child = start_process();
  watch.add(0, child);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  return watch.first_ended() == 0;
}

int wait_for_end(ProcessWatch& watch) {
  int ended = -1;
  for (int i = 0; i < 5000 && ended < 0; ++i) {
    ended = watch.first_ended();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return ended;
}

// Nobody has reaped the child: it is a zombie, but has ended all the same.
TEST(ProcessWatch, SeesAProcessThatWasKilled) {
  if (!can_watch()) GTEST_SKIP() << "the kernel has no pidfd_open";
  const std::array<pid_t, 2> children = {start_process(), start_process()};
  ProcessWatch watch;
  watch.add(5, children[0]);
  watch.add(7, children[1]);
  EXPECT_EQ(watch.first_ended(), -1);
  kill(children[1], SIGSTOP);
  EXPECT_EQ(watch.first_ended(), -1);
  kill(children[1], SIGKILL);
  EXPECT_EQ(wait_for_end(watch), 7);
  kill(children[0], SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
}

TEST(ProcessWatch, R7TellsProcessesThatAreStopped) {
  if (!can_watch()) GTEST_SKIP() << "the kernel has no pidfd_open";
  const std::array<pid_t, 2> children = {start_process(), start_process()};
  ProcessWatch watch;
  watch.add(5, children[0]);
  watch.add(7, children[1]);
  EXPECT_TRUE(watch.stopped().empty());
  kill(children[1], SIGSTOP);
  waitpid(children[1], nullptr, WUNTRACED);
  EXPECT_EQ(watch.stopped(), std::vector<int>{7});
  EXPECT_TRUE(watch.ended().empty());
  for (const pid_t child : children) kill(child, SIGKILL);
  for (const pid_t child : children) waitpid(child, nullptr, 0);
  EXPECT_EQ(watch.ended(), (std::vector<int>{5, 7}));
  EXPECT_TRUE(watch.stopped().empty());
}

TEST(ProcessWatch, SeesNothingWithoutProcesses) {
  ProcessWatch watch;
  EXPECT_EQ(watch.first_ended(), -1);
}

TEST(ProcessWatch, APlaceIsAlwaysTheSame) {
  EXPECT_EQ(place_of_process(), place_of_process());
}

}  // namespace
}  // namespace canzona::comm::process_watch_test

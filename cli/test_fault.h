// Faults injected by tests; users do not need them.
//
//   CANZONA_TEST_FAULT="rank=2,step=3,at=forward,kind=kill"
//   CANZONA_TEST_FAULT="rank=2,at=collective,number=40,kind=kill"
//
//   at      forward, backward, optimizer, save, or collective: the first one of
//           the step, in whichever thread issues it
//   number  instead of a step: the number of a collective of the rank, which
//           may be one of a bench
//   group   counts only collectives of groups whose names begin so: teams
//   kind    kill, segv, abort (signals to itself), exit0 (exits too early),
//           throw (out of the stage), stop (SIGSTOP), cuda (a kernel that reads
//           out of bounds, after which the GPU refuses this process)
//   once    a file that is created when the fault happens; while it exists, the
//           fault does not happen again: for runs that are restarted
//
// Several are separated by ';'.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/comm/thread/thread_world.h"
#include "canzona/train/trainer.h"

namespace canzona::cli {

// Every collective of every rank passes through it. Any thread may call.
class TestFaults final : public Gate {
 public:
  // UsageError names the word that is wrong.
  explicit TestFaults(std::string_view text);

  // Called when a rank reaches a point of a step.
  void at(const TrainMoment& moment);
  void pass(std::string_view group, Operation operation, std::string_view label,
            int world_rank) override;
  void open_for_good() noexcept override {}

 private:
  struct Fault {
    int rank = 0;
    int64_t step = 0;
    int64_t number = 0;  // above 0: instead of the step
    std::string group, at, kind, once;
  };
  static Fault parse(const std::string& text);
  void fail(std::string_view at, int64_t step, int rank, int64_t number = 0);

  std::vector<Fault> faults_;
  std::atomic<int64_t> step_ = 0;        // current step of this process's ranks
  std::atomic<int64_t> num_passed_ = 0;  // by the rank of the first fault
};

// Null unless the environment requests faults.
std::unique_ptr<TestFaults> read_test_faults();

}  // namespace canzona::cli

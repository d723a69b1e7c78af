// zero_fault_rank <fault> <stage>.<overlap> <victim> <deadline in ms>
//
// One of four processes that train slices of a small model, of which the victim
// fails as it comes to an operation of layer 1 for the second time. The others
// say what they saw and exit as a program should: 4 if a peer is lost.
//
//   faults    none, and those of failing.h
//   stages    those of test_zero_stages.h
//   overlaps  none, main, background
#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/comm/thread/thread_world.h"
#include "canzona/runtime/zero/test_zero_stages.h"
#include "tests/mpi/failing.h"

namespace canzona::tests {
namespace {

using std::chrono::milliseconds;

struct Wish {
  std::string fault;
  ZeroStage stage;
  Overlap overlap;
  int victim;
  milliseconds deadline;
};

ZeroStage find_stage(const std::string& name) {
  for (const ZeroStage& stage : zero_stages())
    if (stage.name == name) return stage;
  throw UsageError(cat("stage ", quoted(name), " is unknown"));
}

Wish read_wish(const std::vector<std::string>& words) {
  const std::string& operation = words.at(1);
  const size_t dot = operation.find('.');
  return {words.at(0), find_stage(operation.substr(0, dot)),
          parse_overlap(operation.substr(dot + 1)), std::stoi(words.at(2)),
          milliseconds(std::stoi(words.at(3)))};
}

// Fails at the victim's second operation of its kind.
class FailingGate final : public Gate {
 public:
  explicit FailingGate(const Wish& wish) : wish_(wish) {}

  void pass(std::string_view group, Operation operation, std::string_view label,
            int rank) override {
    note_beginning();
    if (rank != wish_.victim || !wish_.stage.is(group, operation, label))
      return;
    if (++num_passed_ != 2) return;
    // The pause lets the others reach this operation before the fault.
    std::this_thread::sleep_for(milliseconds(200));
    fail(wish_.fault);
  }
  void open_for_good() noexcept override {}

 private:
  const Wish& wish_;
  std::atomic<int> num_passed_ = 0;
};

void run(MpiSession& session, const Wish& wish) {
  Communicator world(session.make_world(), cpu_wire_ops(),
                     {.deadline = wish.deadline}, "world");
  Trial trial;
  trial.plan = zero_stage_plan(wish.stage, wish.overlap);
  const auto engine = make_engine("cpu");
  Runtime runtime(trial.plan, world, *engine, {.overlap = wish.overlap});
  for (int64_t step = 1; step <= 3; ++step) {
    make_gradients(runtime, *engine, trial, step);
    runtime.step({.learning_rate = 0.01});
  }
  runtime.wait_all_params();
}

}  // namespace
}  // namespace canzona::tests

int main(int argc, char** argv) {
  const canzona::tests::Wish wish =
      canzona::tests::read_wish({argv + 1, argv + std::max(argc, 1)});
  canzona::tests::FailingGate gate(wish);
  return canzona::tests::run_rank({.gate = &gate},
                                  [&](canzona::MpiSession& session) {
                                    canzona::tests::run(session, wish);
                                  });
}

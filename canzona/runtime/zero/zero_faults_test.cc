// A rank that fails or stalls in an operation of hierarchical ZeRO: the others
// end and name the operation, the module and the rank.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "canzona/base/error.h"
#include "canzona/comm/thread/thread_world.h"
#include "canzona/runtime/zero/test_zero_stages.h"

namespace canzona::runtime::zero_faults_test {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kVictim = 1;

// Fails or stalls at the victim's second operation of its kind.
class FaultyGate final : public Gate {
 public:
  FaultyGate(ZeroStage stage, bool stays)
      : stage_(std::move(stage)), stays_(stays) {}

  void pass(std::string_view group, Operation operation, std::string_view label,
            int rank) override {
    if (rank != kVictim || !stage_.is(group, operation, label)) return;
    std::unique_lock lock(mutex_);
    if (++num_passed_ != 2) return;
    if (!stays_) throw std::runtime_error("no more paper");
    changed_.wait(lock, [&] { return num_ended_ == 3; });
  }
  void open_for_good() noexcept override {}

  // One of the other ranks has ended.
  void end() {
    const std::lock_guard lock(mutex_);
    ++num_ended_;
    changed_.notify_all();
  }

 private:
  ZeroStage stage_;
  bool stays_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_passed_ = 0;
  int num_ended_ = 0;
};

// Returns each rank's message when it lost a peer.
std::vector<std::string> said(const ZeroStage& stage, bool stays,
                              Overlap overlap) {
  Trial trial;
  trial.plan = zero_stage_plan(stage, overlap);
  FaultyGate gate(stage, stays);
  RunOptions options;
  options.world.gate = &gate;
  if (stays) options.communicator.deadline = std::chrono::seconds(2);
  std::vector<std::string> words(4);
  try {
    run_ranks(4, options, [&](Communicator& world) {
      try {
        const auto engine = make_cpu_engine();
        Runtime runtime(trial.plan, world, *engine, {.overlap = overlap});
        for (int64_t step = 1; step <= 3; ++step) {
          make_gradients(runtime, *engine, trial, step);
          runtime.step({.learning_rate = 0.01});
        }
        runtime.wait_all_params();
      } catch (const std::exception& error) {
        words[static_cast<size_t>(world.rank())] = error.what();
        gate.end();
        throw;
      }
    });
    ADD_FAILURE() << "nobody failed";
  } catch (const std::exception&) {
    // Reported by the ranks.
  }
  return words;
}

class ZeroFault
    : public testing::TestWithParam<std::tuple<ZeroStage, Overlap>> {};

TEST_P(ZeroFault, ThatThrowsEndsTheOthersWithItsWords) {
  const auto& [stage, overlap] = GetParam();
  const std::vector<std::string> words = said(stage, false, overlap);
  for (size_t r = 0; r < words.size(); ++r) {
    SCOPED_TRACE(cat("rank ", r));
    if (r == kVictim) {
      // The rank's own error, whichever of its threads failed.
      EXPECT_EQ(words[r], "no more paper");
      continue;
    }
    EXPECT_THAT(words[r],
                AllOf(HasSubstr("no more paper"), HasSubstr("rank 1")));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runtime, ZeroFault,
    testing::Combine(testing::ValuesIn(zero_stages()),
                     testing::Values(Overlap::kNone, Overlap::kBackground)),
    [](const auto& of) {
      return cat(std::get<0>(of.param).name, "_",
                 to_string(std::get<1>(of.param)));
    });

class ZeroStay : public testing::TestWithParam<ZeroStage> {};

// A late rank may be missed through another that waits for it; only the one
// that was to communicate with it names it. Random faults cover the other
// cases.
TEST_P(ZeroStay, IsNamedWithOperationAndModule) {
  const std::vector<std::string> words = said(GetParam(), true, Overlap::kNone);
  for (const std::string& of_rank : words) EXPECT_THAT(of_rank, Not(IsEmpty()));
  const auto peer = static_cast<size_t>(GetParam().peer_of(kVictim));
  EXPECT_THAT(words[peer],
              AllOf(HasSubstr(std::string(to_string(GetParam().operation))),
                    HasSubstr("'layer 1"),
                    ContainsRegex(
                        "ranks? ([0-9], )*1(, [0-9])* (did|had) not arrive")));
}

INSTANTIATE_TEST_SUITE_P(Runtime, ZeroStay, testing::ValuesIn(zero_stages()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace canzona::runtime::zero_faults_test

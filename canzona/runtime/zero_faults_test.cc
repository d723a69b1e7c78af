// A rank that fails, or does not come, in an operation of hierarchical ZeRO:
// the others end, and say which operation, which module and who.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <stdexcept>

#include "canzona/base/error.h"
#include "canzona/comm/thread/gate.h"
#include "canzona/runtime/test_zero.h"

namespace canzona {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr int kVictim = 1;

// An operation of layer 1, and the rank that meets the victim in it.
struct Stage {
  std::string name;
  ZeroSizes sizes;
  std::string group;
  Operation operation;
  size_t peer;
  int32_t ep = 1;
};

std::vector<Stage> stages() {
  return {{"gather", {4, 2, 2}, "parameters", Operation::kAllGather, 0},
          {"scatter", {4, 2, 2}, "gradients", Operation::kReduceScatter, 0},
          {"sum", {4, 2, 2}, "data", Operation::kReduceScatter, 3},
          {"replicas", {2, 2, 2}, "replicas", Operation::kAllReduce, 3},
          {"publish", {4, 2, 2}, "data", Operation::kAllGather, 3},
          {"experts_gather",
           {4, 2, 2},
           "experts: parameters",
           Operation::kAllGather,
           3,
           2},
          {"experts_scatter",
           {4, 2, 2},
           "experts: gradients",
           Operation::kReduceScatter,
           3,
           2}};
}

// Fails, or stays, at the victim's second operation of its kind.
class FaultyGate final : public Gate {
 public:
  FaultyGate(Stage stage, bool stays)
      : stage_(std::move(stage)), stays_(stays) {}

  void pass(std::string_view group, Operation operation, std::string_view label,
            int rank) override {
    if (rank != kVictim || !group.starts_with(stage_.group) ||
        operation != stage_.operation || label != "layer 1")
      return;
    std::unique_lock lock(mutex_);
    if (++num_passed_ != 2) return;
    if (!stays_) throw std::runtime_error("no more paper");
    changed_.wait(lock, [&] { return num_ended_ == 3; });
  }
  void open_for_good() noexcept override {}

  // One of the others has ended.
  void end() {
    const std::lock_guard lock(mutex_);
    ++num_ended_;
    changed_.notify_all();
  }

 private:
  Stage stage_;
  bool stays_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int num_passed_ = 0;
  int num_ended_ = 0;
};

// What each rank said when it lost another.
std::vector<std::string> said(const Stage& stage, bool stays, Overlap overlap) {
  Trial trial;
  ZeroVariant variant{.sizes = stage.sizes, .overlap = overlap};
  variant.ep = stage.ep;
  if (stage.ep > 1) variant.experts = {2, 2, 2};
  trial.plan =
      zero_plan(stage.ep > 1 ? toy_moe() : toy_model(), 4 / stage.ep, variant);
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
    // Said by the ranks.
  }
  return words;
}

class ZeroFault : public testing::TestWithParam<std::tuple<Stage, Overlap>> {};

TEST_P(ZeroFault, ThatThrowsEndsTheOthersWithItsWords) {
  const auto& [stage, overlap] = GetParam();
  const std::vector<std::string> words = said(stage, false, overlap);
  for (size_t r = 0; r < words.size(); ++r) {
    SCOPED_TRACE(cat("rank ", r));
    EXPECT_THAT(words[r], HasSubstr("no more paper"));
    EXPECT_THAT(words[r], r == kVictim ? HasSubstr("") : HasSubstr("rank 1"));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Runtime, ZeroFault,
    testing::Combine(testing::ValuesIn(stages()),
                     testing::Values(Overlap::kNone, Overlap::kBackground)),
    [](const auto& of) {
      return cat(std::get<0>(of.param).name, "_",
                 to_string(std::get<1>(of.param)));
    });

class ZeroStay : public testing::TestWithParam<Stage> {};

// Who is late may be missed through another that waits for it; the one that was
// to meet it knows. Random faults have the other modes.
TEST_P(ZeroStay, IsNamedWithOperationAndModule) {
  const std::vector<std::string> words = said(GetParam(), true, Overlap::kNone);
  for (const std::string& of_rank : words) EXPECT_THAT(of_rank, Not(IsEmpty()));
  EXPECT_THAT(
      words[GetParam().peer],
      AllOf(HasSubstr(std::string(to_string(GetParam().operation))),
            HasSubstr("'layer 1'"),
            ContainsRegex("ranks? ([0-9], )*1(, [0-9])* (did|had) not come")));
}

INSTANTIATE_TEST_SUITE_P(Runtime, ZeroStay, testing::ValuesIn(stages()),
                         [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace canzona

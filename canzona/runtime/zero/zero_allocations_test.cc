// An iteration of hierarchical ZeRO does not allocate: pools, queues and lists
// are reserved in advance.
#include <gtest/gtest.h>

#include <barrier>

#include "canzona/base/test_allocations.h"
#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime::zero_allocations_test {
namespace {

constexpr int kRanks = 4, kMicroBatches = 2;
constexpr int64_t kWarmSteps = 4,
                  kSteps = 8;  // more than a period of refreshes

// A rank's iteration without anything that the test itself adds.
class LeanRank {
 public:
  explicit LeanRank(Runtime& runtime)
      : runtime_(runtime),
        uses_(uses_of(runtime, kMicroBatches)),
        tensors_(static_cast<size_t>(num_modules(runtime.plan().model))) {
    const Model& model = runtime.plan().model;
    for (int32_t t = 0; t < std::ssize(model.tensors); ++t)
      tensors_[static_cast<size_t>(
                   module_of(model, model.tensors[static_cast<size_t>(t)]))]
          .push_back(t);
  }

  void run(int64_t step) {
    runtime_.begin_iteration(uses_, kMicroBatches);
    const size_t per_batch = uses_.size() / kMicroBatches;
    for (size_t u = 0; u < uses_.size(); ++u) {
      runtime_.wait_params(uses_[u]);
      if (u % per_batch >= per_batch / 2) add_gradients(uses_[u], step);
      runtime_.release_params(uses_[u]);
    }
    runtime_.step({.learning_rate = 0.01, .clip_norm = 1});
    runtime_.zero_gradients();
  }

 private:
  void add_gradients(int32_t module, int64_t step) {
    for (const int32_t t : tensors_[static_cast<size_t>(module)]) {
      const std::span<float> gradient = runtime_.gradient(t);
      for (int64_t i = 0; i < runtime_.shard_elements(t); ++i)
        gradient[i] += 0.001F * static_cast<float>(i * step % 17 - 8);
      runtime_.grad_ready(t);
    }
  }

  Runtime& runtime_;
  std::vector<int32_t> uses_;
  std::vector<std::vector<int32_t>> tensors_;  // by module
};

// No rank allocates after the first iterations.
void expect_lean(const Plan& plan, Overlap overlap) {
  std::barrier together(kRanks);
  run_ranks(kRanks, [&](Communicator& world) {
    const auto engine = make_cpu_engine();
    Runtime runtime(plan, world, *engine, {.overlap = overlap});
    set_initial_parameters(runtime);
    LeanRank rank(runtime);
    int64_t before = 0;
    for (int64_t step = 1; step <= kSteps; ++step) {
      rank.run(step);
      runtime.wait_all_params();
      together.arrive_and_wait();
      if (step == kWarmSteps) before = num_allocations();
      if (step == kSteps) {
        EXPECT_EQ(num_allocations(), before);
      }
      together.arrive_and_wait();
    }
  });
}

TEST(LeanExperts, AllocateNothingInAnIteration) {
  for (const std::string rule : {"muon", "adamw"})
    expect_lean(
        zero_plan(toy_moe(), kRanks,
                  {.sizes = {4, 2, 2}, .rule = rule, .experts = {4, 4, 4}}),
        Overlap::kBackground);
}

class LeanSizes : public testing::TestWithParam<ZeroSizes> {};

TEST_P(LeanSizes, AllocateNothingInAnIteration) {
  for (const std::string rule : {"muon", "adamw", "shampoo", "soap"})
    for (const MessageUnit message :
         {MessageUnit::kModule, MessageUnit::kParameter})
      for (const Overlap overlap :
           {Overlap::kNone, Overlap::kMain, Overlap::kBackground}) {
        const ZeroVariant v{.sizes = GetParam(),
                            .rule = rule,
                            .overlap = overlap,
                            .message = message,
                            .reach = overlap == Overlap::kMain ? Reach::kPerNode
                                                               : Reach::kDirect,
                            .ranks_per_node = 2};
        const bool usual =
            message == MessageUnit::kModule && overlap == Overlap::kBackground;
        if (rule != "muon" && !usual) continue;
        SCOPED_TRACE(to_string(v));
        expect_lean(zero_plan(toy_model(), kRanks, v), overlap);
      }
}

INSTANTIATE_TEST_SUITE_P(Zero, LeanSizes,
                         testing::Values(ZeroSizes{4, 4, 4}, ZeroSizes{4, 2, 2},
                                         ZeroSizes{4, 2, 4}, ZeroSizes{4, 4, 2},
                                         ZeroSizes{4, 4, 1}, ZeroSizes{4, 1, 4},
                                         ZeroSizes{2, 2, 2}),
                         [](const auto& of) {
                           return cat("z", of.param.z1, of.param.z2,
                                      of.param.z3);
                         });

}  // namespace
}  // namespace canzona::runtime::zero_allocations_test

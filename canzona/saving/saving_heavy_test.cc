// All pairs of meshes, long walks, and the memory of a load.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/saving/test_saving.h"

namespace canzona::saving::saving_heavy_test {
namespace {

constexpr std::array<std::string_view, 4> kHeavyRules = {"muon", "adamw",
                                                         "shampoo", "soap"};

class OfEveryRuleHeavy : public testing::TestWithParam<std::string_view> {};

// Every strategy with every kind of ZeRO on every number of ranks, if there is
// such a plan.
std::vector<PlanWish> all_saving_wishes(const std::string& rule) {
  std::vector<PlanWish> wishes;
  for (const char* mesh : {"dp=1", "dp=2", "dp=3", "dp=2,tp=2", "dp=6",
                           "dp=4,tp=2", "dp=2,ep=2,tp=2"})
    for (const std::string& strategy : strategy_names())
      for (const char* zero : {"none", "zero1", "zero2", "zero3", "hier:2"}) {
        const PlanWish wish{.mesh = mesh,
                            .strategy = strategy,
                            .rule = rule,
                            .options = quick(rule),
                            .zero = zero};
        try {
          small_plan(toy_moe(), wish);
          wishes.push_back(wish);
        } catch (const UsageError&) {
          // ZeRO sizes must divide the ranks, and not every strategy supports
          // all of them.
        }
      }
  return wishes;
}

// A different state for every plan, so that loading nothing is detected.
SessionResult save_its_own(const PlanWish& wish, int64_t number,
                           const std::string& folder) {
  Session session{.plan = small_plan(toy_moe(), wish),
                  .steps = 1 + number % 4,
                  .first_step = 1 + 10 * number,
                  .saves = true,
                  .background = number % 2 == 0};
  const int64_t last = session.first_step + session.steps - 1;
  session.at_step[last] = [last](RankSession& rank) {
    rank.saver->save(last, {});
  };
  return run_session(session, folder);
}

// Every pair of plans, each with one of the rules: the names of a rule's states
// do not depend on the pair.
TEST_P(OfEveryRuleHeavy, S1LoadsEverywhereWhatWasSavedAnywhere) {
  const std::vector<PlanWish> wishes =
      all_saving_wishes(std::string(GetParam()));
  const size_t share =
      index(std::ranges::find(kHeavyRules, GetParam()) - kHeavyRules.begin());
  ASSERT_GE(wishes.size(), 80u);
  std::vector<SavingFolder> folders(wishes.size());
  std::vector<SessionResult> saved;
  std::set<std::string> different;
  for (size_t from = 0; from < wishes.size(); ++from) {
    saved.push_back(
        save_its_own(wishes[from], std::ssize(saved), folders[from].ckpt()));
    different.insert(saved.back().states);
  }
  ASSERT_EQ(different.size(), wishes.size());
  for (size_t to = 0; to < wishes.size(); ++to) {
    const Plan plan = small_plan(toy_moe(), wishes[to]);
    run_ranks(plan.mesh.world(), {}, [&](Communicator& world) {
      const auto engine = make_engine("cpu");
      Runtime runtime(plan, world, *engine, {});
      for (size_t from = 0; from < wishes.size(); ++from) {
        if ((from + to) % kHeavyRules.size() != share) continue;
        SCOPED_TRACE(
            cat(to_string(wishes[from]), " -> ", to_string(wishes[to])));
        load_state(runtime, world, {.folder = folders[from].ckpt()});
        ASSERT_EQ(runtime.parameter_digest(), saved[from].parameters);
        ASSERT_EQ(runtime.state_digest(), saved[from].states);
        ASSERT_EQ(runtime.steps_done(), saved[from].steps_done);
      }
    });
    ASSERT_FALSE(HasFailure());
  }
}

TEST_P(OfEveryRuleHeavy, S2WalksAHundredTimes) {
  for (uint64_t walk = 100; walk < 125; ++walk)
    expect_walk(many_saving_wishes(std::string(GetParam())), walk);
}

INSTANTIATE_TEST_SUITE_P(Rules, OfEveryRuleHeavy,
                         testing::ValuesIn(kHeavyRules.begin(),
                                           kHeavyRules.end()),
                         [](const auto& rule) {
                           return std::string(rule.param);
                         });

// "VmHWM" of this process, in bytes.
int64_t memory_line(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kilobytes = 0;
  while (status >> word)
    if (word == key + ":" && status >> kilobytes) return kilobytes << 10;
  return 0;
}

// Resets the peak; returns false if the system does not support that.
bool forget_peak() {
  std::ofstream refs("/proc/self/clear_refs");
  refs << "5" << std::flush;
  return refs.good();
}

// 512 MiB of weights and states on 8 ranks, saved by 3.
TEST(LoadStateHeavy, S5TakesLittleMemoryBesideTheState) {
  if (!forget_peak()) GTEST_SKIP() << "this system tells no peak";
  Model model{.name = "matrices", .tensors = {}};
  model.num_layers = 16;
  for (int32_t i = 0; i < model.num_layers; ++i)
    model.tensors.push_back({.name = cat("layers.", i, ".w"),
                             .shape = {1024, 4096},
                             .cut = Cut::kRows,
                             .layer = i,
                             .matrix_rule = true});
  constexpr int64_t kLargestBox = 1024 * 4096 * 4;
  const auto plan_on = [&](const std::string& mesh, DType dtype) {
    return small_plan(model, {.mesh = mesh,
                              .bucket_elements = 10'000'000,
                              .capacity_bytes = 64 << 20,
                              .parameters = dtype});
  };
  const SavingFolder folder;
  Session saving{.plan = plan_on("dp=3", DType::kFp32),
                 .saves = true,
                 .background = false};
  saving.at_step[0] = [](RankSession& rank) { rank.saver->save(1, {}); };
  run_session(saving, folder.ckpt());
  for (const DType dtype : {DType::kFp32, DType::kBf16}) {
    const Plan plan = plan_on("dp=4,tp=2", dtype);
    int64_t before = 0;
    run_ranks(8, {}, [&](Communicator& world) {
      const auto engine = make_engine("cpu");
      Runtime runtime(plan, world, *engine, {});
      set_initial_parameters(runtime);
      world.barrier();
      if (world.rank() == 0) {
        ::malloc_trim(0);  // free memory in it would hide what a load takes
        before = memory_line("VmRSS");
        ASSERT_TRUE(forget_peak());
      }
      world.barrier();
      load_state(runtime, world, {.folder = folder.ckpt()});
      world.barrier();
      if (world.rank() == 0)
        EXPECT_LE(memory_line("VmHWM") - before,
                  (int64_t{64} << 20) + kLargestBox);
    });
  }
}

}  // namespace
}  // namespace canzona::saving::saving_heavy_test

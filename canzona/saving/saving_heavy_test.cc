// All pairs of meshes, long walks, and the memory of a load.
#include <gtest/gtest.h>

#include <fstream>

#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/saving/test_saving.h"

namespace canzona::saving_heavy_test {
namespace {

class OfEveryRuleHeavy : public testing::TestWithParam<std::string> {};

TEST_P(OfEveryRuleHeavy, S1LoadsEverywhereWhatWasSavedAnywhere) {
  const std::vector<PlanWish> wishes = many_saving_wishes(GetParam());
  for (const PlanWish& from : wishes) {
    const SavingFolder folder;
    const SessionResult saved = save_on(from, folder.ckpt(), 2);
    for (const PlanWish& to : wishes) {
      SCOPED_TRACE(cat(to_string(from), " -> ", to_string(to)));
      const SessionResult loaded = run_session(
          {.plan = small_plan(toy_moe(), to), .load = "auto"}, folder.ckpt());
      ASSERT_EQ(loaded.parameters, saved.parameters);
      ASSERT_EQ(loaded.states, saved.states);
      ASSERT_EQ(loaded.steps_done, 2);
    }
  }
}

TEST_P(OfEveryRuleHeavy, S2WalksAHundredTimes) {
  for (uint64_t walk = 100; walk < 125; ++walk)
    expect_walk(many_saving_wishes(GetParam()), walk);
}

INSTANTIATE_TEST_SUITE_P(Rules, OfEveryRuleHeavy,
                         testing::Values("muon", "adamw", "shampoo", "soap"),
                         [](const auto& rule) { return rule.param; });

// "VmHWM" of this process, in bytes.
int64_t memory_line(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kilobytes = 0;
  while (status >> word)
    if (word == key + ":" && status >> kilobytes) return kilobytes << 10;
  return 0;
}

// From here on the peak is counted anew; false where the system does not.
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
  const auto plan_on = [&](const std::string& mesh, ParameterDtype dtype) {
    return small_plan(model, {.mesh = mesh,
                              .bucket_elements = 10'000'000,
                              .capacity_bytes = 64 << 20,
                              .parameters = dtype});
  };
  const SavingFolder folder;
  Session saving{.plan = plan_on("dp=3", ParameterDtype::kFp32),
                 .saves = true,
                 .background = false};
  saving.at_step[0] = [](RankSession& rank) { rank.saver->save(1, {}); };
  run_session(saving, folder.ckpt());
  for (const ParameterDtype dtype :
       {ParameterDtype::kFp32, ParameterDtype::kBf16}) {
    const Plan plan = plan_on("dp=4,tp=2", dtype);
    int64_t before = 0;
    run_ranks(8, {}, [&](Communicator& world) {
      const auto engine = make_engine("cpu");
      Runtime runtime(plan, world, *engine, {});
      set_initial_parameters(runtime);
      world.barrier();
      if (world.rank() == 0) {
        before = memory_line("VmRSS");
        ASSERT_TRUE(forget_peak());
      }
      world.barrier();
      load_state(runtime, world, {.folder = folder.ckpt()});
      world.barrier();
      if (world.rank() == 0)
        EXPECT_LE(memory_line("VmHWM") - before,
                  8 * ((int64_t{64} << 20) + kLargestBox));
    });
  }
}

}  // namespace
}  // namespace canzona::saving_heavy_test

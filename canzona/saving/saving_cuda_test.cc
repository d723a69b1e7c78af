// States in GPU memory are saved and loaded like others.
#include <gtest/gtest.h>

#include "canzona/linalg/cuda_device.h"
#include "canzona/saving/test_saving.h"

namespace canzona::saving::saving_cuda_test {
namespace {

class SavingOnGpu : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string why;
    if (!find_cuda_device(&why)) GTEST_SKIP() << why;
  }
  Plan plan(const std::string& mesh, const std::string& zero,
            const std::string& device = "cuda") const {
    return small_plan(toy_moe(), {.mesh = mesh,
                                  .rule = GetParam(),
                                  .options = quick(GetParam()),
                                  .device = device,
                                  .zero = zero});
  }
};

TEST_P(SavingOnGpu, GoesOnOnOtherMeshesAndIsTheSameOnACpu) {
  const SessionResult straight = run_session(
      {.plan = plan("dp=2", "zero1"), .device = "cuda", .steps = 5}, "");
  for (const bool background : {false, true}) {
    const SavingFolder folder;
    Session session{.plan = plan("dp=2,tp=2", "zero1"),
                    .device = "cuda",
                    .steps = 4,
                    .saves = true,
                    .background = background};
    session.at_step[2] = [](RankSession& rank) { rank.saver->save(2, {}); };
    run_session(session, folder.ckpt());
    for (const std::string zero : {"zero1", "zero3"}) {
      SCOPED_TRACE(zero);
      const SessionResult rest = run_session({.plan = plan("dp=4", zero),
                                              .device = "cuda",
                                              .steps = 3,
                                              .first_step = 3,
                                              .load = "auto"},
                                             folder.ckpt());
      EXPECT_EQ(rest.parameters, straight.parameters);
      EXPECT_EQ(rest.states, straight.states);
    }
    const auto loaded_on = [&](const std::string& device) {
      const SessionResult result =
          run_session({.plan = plan("dp=2", "zero1", device),
                       .device = device,
                       .load = "2"},
                      folder.ckpt());
      return result.parameters + result.states;
    };
    EXPECT_EQ(loaded_on("cpu"), loaded_on("cuda"));
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, SavingOnGpu,
                         testing::Values("muon", "adamw", "shampoo", "soap"),
                         [](const auto& rule) { return rule.param; });

}  // namespace
}  // namespace canzona::saving::saving_cuda_test

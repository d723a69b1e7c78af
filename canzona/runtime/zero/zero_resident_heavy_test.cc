// Pools are reserved once and nothing else is: memory at step 500 equals that
// at step 10. Runs in its own process, so that no other test's memory is
// counted.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>

#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime::zero_resident_heavy_test {
namespace {

double resident_bytes() {
  std::ifstream file("/proc/self/status");
  std::string word;
  while (file >> word) {
    double kilobytes = 0;
    if (word == "VmRSS:" && file >> kilobytes) return kilobytes * 1024;
  }
  return -1;
}

// Large enough that a single leaked slot would show.
Model large_layers() {
  std::vector<Tensor> tensors;
  for (int32_t l = 0; l < 4; ++l) {
    tensors.push_back(
        matrix_tensor(cat("layers.", l, ".w"), 256, 512, Cut::kNone, l));
    tensors.push_back(adamw_tensor(cat("layers.", l, ".n"), 1 << 17, l));
  }
  return model_of(std::move(tensors));
}

TEST(ZeroResident, MemoryOfStep500IsThatOfStep10) {
  for (const ZeroSizes& sizes :
       std::vector<ZeroSizes>{{4, 4, 4}, {4, 2, 2}, {4, 2, 4}}) {
    double early = 0, late = 0;
    Trial trial;
    trial.plan =
        zero_plan(large_layers(), 4, {.sizes = sizes, .rule = "adamw"});
    trial.steps = 500;
    trial.before_step = [&](Runtime& runtime, int64_t step) {
      if (runtime.coordinates().rank != 0) return;
      if (step == 10) early = resident_bytes();
      if (step == 500) late = resident_bytes();
    };
    run_trial(trial);
    std::cout << to_string(sizes) << ": " << early / 1e6 << " MB at step 10, "
              << late / 1e6 << " MB at step 500\n";
    EXPECT_NEAR(late, early, 1 << 20);
  }
}

}  // namespace
}  // namespace canzona::runtime::zero_resident_heavy_test

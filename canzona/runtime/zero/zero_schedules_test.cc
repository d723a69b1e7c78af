// Some random schedules; a thousand are in zero_schedules_heavy_test.cc.
#include <gtest/gtest.h>

#include "canzona/runtime/zero/test_zero_schedules.h"

namespace canzona::runtime::zero_schedules_test {
namespace {

TEST(ZeroSchedules, EndWithOneResult) {
  Schedules schedules;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Schedule schedule = random_schedule(seed);
    ASSERT_TRUE(schedules.agrees(schedule)) << to_string(schedule);
  }
}

}  // namespace
}  // namespace canzona::runtime::zero_schedules_test

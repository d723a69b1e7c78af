// A thousand schedules with random delays in every thread and minimal pools: no
// hang, one result.
#include <gtest/gtest.h>

#include "canzona/runtime/zero/test_zero_schedules.h"

namespace canzona::runtime::zero_schedules_heavy_test {
namespace {

TEST(ZeroSchedules, AThousandEndWithOneResult) {
  Schedules schedules;
  for (uint64_t seed = 1001; seed <= 2000; ++seed) {
    const Schedule schedule = random_schedule(seed);
    ASSERT_TRUE(schedules.agrees(schedule)) << to_string(schedule);
  }
}

}  // namespace
}  // namespace canzona::runtime::zero_schedules_heavy_test

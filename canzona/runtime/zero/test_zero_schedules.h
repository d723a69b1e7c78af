// Random schedules of hierarchical ZeRO, for tests: every thread of every rank
// is delayed at random moments, and pools are as small as possible.
//
//   Schedule schedule = random_schedule(17);
//   EXPECT_TRUE(schedules.agrees(schedule));
#pragma once

#include <map>
#include <string>

#include "canzona/runtime/zero/test_zero.h"

namespace canzona::runtime {

struct Schedule {
  uint64_t seed = 0;
  int32_t dp = 2;
  ZeroVariant variant = {};
};
Schedule random_schedule(uint64_t seed);
std::string to_string(const Schedule& schedule);

// Results that must not differ, each computed once without delays.
class Schedules {
 public:
  // True if a run with delays has the result of one without.
  bool agrees(const Schedule& schedule);

 private:
  std::map<std::string, std::string> expected_;
};

}  // namespace canzona::runtime

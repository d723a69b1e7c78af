#include "canzona/rules/runs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/linalg/engine.h"
#include "canzona/linalg/test_remote_engine.h"

namespace canzona::rules {
namespace {

using testing::ElementsAre;

void add_square(Engine& engine, Run in, Run out, int64_t count) {
  on_host(engine, {in, out}, count, [&](std::span<float* const> x) {
    for (int64_t i = 0; i < count; ++i) x[1][i] += x[0][i] * x[0][i];
  });
}

void expect_squares_added(Engine& engine) {
  EngineMemory memory(engine);
  const Run in = memory.put(std::vector<float>{1, -2, 3});
  const Run out = memory.put(std::vector<float>{10, 20, 30});
  add_square(engine, in, out, 3);
  add_square(engine, in, out, 2);
  add_square(engine, in, out, 0);
  EXPECT_THAT(memory.get<float>(out.data, 3), ElementsAre(12, 28, 39));
  EXPECT_THAT(memory.get<float>(in.data, 3), ElementsAre(1, -2, 3));
}

TEST(OnHost, ChangesRunsOfTheCpuInPlace) {
  const auto engine = make_cpu_engine();
  expect_squares_added(*engine);
}

TEST(OnHost, BringsRunsOfAnotherDeviceHereAndBack) {
  RemoteEngine engine(4);
  expect_squares_added(engine);
}

}  // namespace
}  // namespace canzona::rules

#include "canzona/linalg/cuda_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace canzona::linalg::visible_gpus_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(VisibleGpus, AreAllUnlessTheVariableSaysSo) {
  const std::vector<std::string> all = {"GPU-a", "GPU-b", "GPU-c"};
  EXPECT_EQ(visible_gpus(nullptr, all), all);
  EXPECT_THAT(visible_gpus("2,0", all), ElementsAre("GPU-c", "GPU-a"));
  EXPECT_THAT(visible_gpus("GPU-b", all), ElementsAre("GPU-b"));
  EXPECT_THAT(visible_gpus("", all), IsEmpty());
  EXPECT_THAT(visible_gpus("-1", all), IsEmpty());
  EXPECT_THAT(visible_gpus("1,-1,0", all), ElementsAre("GPU-b"));
  // CUDA will report what is wrong with it.
  EXPECT_THAT(visible_gpus("7", all), ElementsAre("7"));
}

// Without the driver's library numbers stay numbers.
TEST(VisibleGpus, MayBeNumbersAlone) {
  EXPECT_THAT(visible_gpus("0,1", {}), ElementsAre("0", "1"));
  EXPECT_THAT(visible_gpus(nullptr, {}), IsEmpty());
}

}  // namespace
}  // namespace canzona::linalg::visible_gpus_test

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/comm/nccl/nccl_library.h"

namespace canzona::comm::no_nccl_test {
namespace {

TEST(NoNccl, SaysSoAndHowToGetIt) {
  EXPECT_FALSE(nccl_is_built());
  EXPECT_THAT(nccl_description(),
              testing::AllOf(testing::HasSubstr("no NCCL"),
                             testing::HasSubstr("2.27.7"),
                             testing::HasSubstr("nvidia-nccl-cu13")));
  EXPECT_THROW(load_nccl(), UsageError);
}

}  // namespace
}  // namespace canzona::comm::no_nccl_test

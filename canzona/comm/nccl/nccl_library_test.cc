#include "canzona/comm/nccl/nccl_library.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace canzona::comm::nccl_library_test {
namespace {

// Needs no GPU: nothing is initialized.
TEST(NcclLibrary, HasEveryRequiredFunction) {
  ASSERT_TRUE(nccl_is_built());
  const NcclApi& nccl = load_nccl();
  EXPECT_GE(nccl_version_of(nccl), kOldestNccl);
  EXPECT_STREQ(nccl.get_error_string(NcclResult::kSuccess), "no error");
  EXPECT_THAT(nccl_description(),
              testing::HasSubstr(nccl_version_text(nccl_version_of(nccl))));
}

}  // namespace
}  // namespace canzona::comm::nccl_library_test

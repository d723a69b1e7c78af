#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/comm/mpi/mpi_session.h"

namespace canzona::comm::no_mpi_test {
namespace {

TEST(NoMpi, SaysSo) {
  EXPECT_FALSE(mpi_is_built());
  EXPECT_THAT(mpi_description(), testing::HasSubstr("no MPI"));
  EXPECT_THROW(MpiSession(), UsageError);
}

}  // namespace
}  // namespace canzona::comm::no_mpi_test

#include <gtest/gtest.h>

#include "canzona/comm/test_everything.h"
#include "canzona/comm/thread/run_ranks.h"

namespace canzona::comm::link_allocations_test {
namespace {

TEST(Allocations, LinksNeedNone) {
  RunOptions options;
  options.world.link = LinkModel{1e12, 1e12, 0, 2};
  run_ranks(4, options, expect_no_allocation);
}

}  // namespace
}  // namespace canzona::comm::link_allocations_test

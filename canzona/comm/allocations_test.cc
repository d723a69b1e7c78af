#include <gtest/gtest.h>

#include <vector>

#include "canzona/base/test_allocations.h"
#include "canzona/comm/courier.h"
#include "canzona/comm/test_everything.h"
#include "canzona/comm/test_ranks.h"

namespace canzona::comm::comm_allocations_test {
namespace {

TEST(Allocations, NoOperationAsksForMemory) {
  run_test_ranks(4, expect_no_allocation);
}

TEST(Allocations, NeitherDoChecksAndSegments) {
  run_test_ranks(4, {.segment_bytes = 8, .check_collectives = true},
                 expect_no_allocation);
}

TEST(Allocations, ACourierNeedsNoneToPost) {
  run_test_ranks(2, [](Communicator& world) {
    std::vector<float> data(100);
    const auto meet = [](Communicator& group, const Call& call) {
      group.barrier(call);
    };
    Courier courier(world, 2);
    courier.barrier().wait();
    const int64_t before = num_allocations();
    courier.barrier().wait();
    for (int round = 0; round < 5; ++round) {
      courier.all_reduce(Reduction::kFp32Sum, bytes_of(data));
      courier.run("meet", meet, {.label = "longer than a short string is"});
    }
    courier.barrier().wait();
    EXPECT_EQ(num_allocations(), before);
    courier.barrier().wait();
  });
}

}  // namespace
}  // namespace canzona::comm::comm_allocations_test

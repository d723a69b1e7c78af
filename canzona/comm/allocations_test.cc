#include <gtest/gtest.h>

#include <barrier>
#include <vector>

#include "canzona/base/test_allocations.h"
#include "canzona/comm/courier.h"
#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"

namespace canzona {
namespace {

struct Buffers {
  explicit Buffers(size_t n) : counts(n, 9), bytes(n, 36), places(n) {
    for (size_t i = 0; i < n; ++i) places[i] = static_cast<int64_t>(i) * 36;
    whole.resize(9 * n);
    other.resize(9 * n);
    own.resize(9);
  }

  std::vector<int64_t> counts, bytes, places;
  std::vector<float> whole, other, own;
};

void call_everything(Communicator& world, Buffers& with) {
  const Call call = {.label = "a label too long to be kept inside a string"};
  for (const auto reduction :
       {Reduction::kFp32Sum, Reduction::kFp32SumOfBf16}) {
    world.all_reduce(reduction, bytes_of(with.whole), call);
    world.reduce_scatter_v(reduction, bytes_of(with.whole), with.counts,
                           bytes_of(with.own), call);
  }
  world.all_gather_v(bytes_of(with.own), with.bytes, bytes_of(with.whole),
                     call);
  world.all_to_all_v({bytes_of(with.whole), with.bytes, with.places},
                     {bytes_of(with.other), with.bytes, with.places}, call);
  world.broadcast(1, bytes_of(with.own), call);
  world.barrier(call);
}

void expect_none_after_start(const RunOptions& options) {
  std::barrier together(4);
  run_ranks(4, options, [&](Communicator& world) {
    Buffers buffers(4);
    together.arrive_and_wait();
    const int64_t before = num_allocations();
    together.arrive_and_wait();
    for (int round = 0; round < 3; ++round) call_everything(world, buffers);
    together.arrive_and_wait();
    EXPECT_EQ(num_allocations(), before);
    together.arrive_and_wait();
  });
}

TEST(Allocations, NoOperationAsksForMemory) { expect_none_after_start({}); }

TEST(Allocations, NeitherDoChecksSegmentsAndLinks) {
  RunOptions options;
  options.communicator.check_collectives = true;
  options.communicator.segment_bytes = 8;
  options.world.link = LinkModel{1e12, 1e12, 0, 2};
  expect_none_after_start(options);
}

TEST(Allocations, ACourierNeedsNoneToPost) {
  std::barrier together(2);
  run_ranks(2, [&](Communicator& world) {
    std::vector<float> data(100);
    Courier courier(world, 2);
    courier.barrier().wait();
    together.arrive_and_wait();
    const int64_t before = num_allocations();
    together.arrive_and_wait();
    for (int round = 0; round < 5; ++round)
      courier.all_reduce(Reduction::kFp32Sum, bytes_of(data));
    courier.barrier().wait();
    together.arrive_and_wait();
    EXPECT_EQ(num_allocations(), before);
    together.arrive_and_wait();
  });
}

}  // namespace
}  // namespace canzona

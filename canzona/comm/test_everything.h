// For tests: runs every operation once, and checks that none allocates.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "canzona/base/test_allocations.h"
#include "canzona/comm/communicator.h"
#include "canzona/comm/test_pieces.h"

namespace canzona::comm {

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

inline void call_everything(Communicator& world, Buffers& with) {
  const Call call = {.label = "a label too long to be kept inside a string"};
  for (const auto reduction :
       {Reduction::kFp32Sum, Reduction::kFp32SumOfBf16}) {
    world.all_reduce(reduction, bytes_of(with.whole), call);
    world.reduce_scatter_v(reduction, bytes_of(with.whole), with.counts,
                           bytes_of(with.own), call);
  }
  world.all_gather_v(bytes_of(with.own), with.bytes, bytes_of(with.whole),
                     call);
  world.reduce_scatter_runs(Reduction::kFp32Sum,
                            {bytes_of(with.whole), with.counts, with.places},
                            call);
  world.all_gather_runs({bytes_of(with.whole), with.bytes, with.places}, call);
  world.all_to_all_v({bytes_of(with.whole), with.bytes, with.places},
                     {bytes_of(with.other), with.bytes, with.places}, call);
  world.broadcast(1, bytes_of(with.own), call);
  world.barrier(call);
}

inline void expect_no_allocation(Communicator& world) {
  Buffers buffers(static_cast<size_t>(world.size()));
  call_everything(world, buffers);
  // Allocations of all ranks that are threads are counted together.
  world.barrier();
  const int64_t before = num_allocations();
  world.barrier();
  for (int round = 0; round < 3; ++round) call_everything(world, buffers);
  world.barrier();
  EXPECT_EQ(num_allocations(), before);
  world.barrier();
}

}  // namespace canzona::comm

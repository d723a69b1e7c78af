#include <gtest/gtest.h>

#include <vector>

#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/test_memory_ops.h"
#include "canzona/runtime/engine_wire_ops.h"

namespace canzona::engine_wire_ops_cuda_test {
namespace {

// Threads as ranks, all on the one GPU.
class CudaWireOps : public testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!find_cuda_device(&why_not)) GTEST_SKIP() << why_not;
  }
  static std::span<std::byte> bytes_at(float* data, int64_t count) {
    return std::as_writable_bytes(std::span(data, static_cast<size_t>(count)));
  }
};

TEST_F(CudaWireOps, SumsHaveTheBitsOfTheTree) {
  const EngineWireOps ops(memory_ops("cuda"));
  RunOptions options;
  options.communicator.segment_bytes = 4096;
  for (const int num_ranks : {1, 2, 4, 7})
    for (const Reduction reduction :
         {Reduction::kFp32Sum, Reduction::kFp32SumOfBf16})
      run_ranks(num_ranks, options, [&](Communicator& world) {
        const auto group = world.split(0, world.rank(), "gpu", {}, &ops);
        constexpr int64_t kCount = 5003;
        const Placed<float> data(memory_ops("cuda"),
                                 test_piece(world.rank(), kCount));
        group->all_reduce(reduction, bytes_at(data.data(), kCount));
        const std::vector<float> found = data.get();
        const bool bf16 = is_narrowed(reduction);
        for (int64_t i = 0; i < kCount; ++i)
          ASSERT_TRUE(same_bits(found[static_cast<size_t>(i)],
                                oracle_at(num_ranks, i, bf16)))
              << to_string(reduction) << " over " << num_ranks << ", " << i;
      });
}

TEST_F(CudaWireOps, PiecesAreGathered) {
  const EngineWireOps ops(memory_ops("cuda"));
  run_ranks(4, [&](Communicator& world) {
    const auto group = world.split(0, world.rank(), "gpu", {}, &ops);
    const std::vector<int64_t> bytes = {0, 4, 400, 8};
    const auto rank = static_cast<size_t>(world.rank());
    const Placed<float> own(memory_ops("cuda"),
                            test_piece(world.rank(), bytes[rank] / 4));
    const Placed<float> whole(memory_ops("cuda"), std::vector<float>(103));
    group->all_gather_v(bytes_at(own.data(), bytes[rank] / 4), bytes,
                        bytes_at(whole.data(), 103));
    std::vector<float> expected;
    for (int from = 0; from < 4; ++from)
      for (const float x :
           test_piece(from, bytes[static_cast<size_t>(from)] / 4))
        expected.push_back(x);
    EXPECT_EQ(whole.get(), expected);
  });
}

}  // namespace
}  // namespace canzona::engine_wire_ops_cuda_test

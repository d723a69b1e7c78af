#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "canzona/comm/test_pieces.h"
#include "canzona/comm/thread/run_ranks.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/test_memory_ops.h"
#include "canzona/runtime/engine_lanes.h"

namespace canzona::runtime::engine_wire_ops_cuda_test {
namespace {

// Threads as ranks, all sharing one GPU.
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

// 1 to 64 pieces, at every alignment, against the tree on the host.
TEST_F(CudaWireOps, AKernelAddsAsTheTreeDoes) {
  const MemoryOps& memory = memory_ops("cuda");
  const EngineWireOps ops(memory);
  constexpr int64_t kMost = 3001;
  constexpr int64_t kStride = kMost + 64;
  const auto expect_sum = [&](Reduction reduction, int num_pieces,
                              int64_t count, int64_t offset) {
    const int64_t bytes = wire_bytes(reduction);
    std::vector<float> values;
    for (int piece = 0; piece < num_pieces; ++piece)
      for (const float x : test_piece(piece, kStride)) values.push_back(x);
    std::vector<std::byte> wire(values.size() * static_cast<size_t>(bytes));
    if (is_narrowed(reduction))
      cpu_wire_ops().narrow(reduction, wire.data(),
                            reinterpret_cast<const std::byte*>(values.data()),
                            std::ssize(values));
    else
      std::memcpy(wire.data(), values.data(), wire.size());
    const Placed<std::byte> there(memory, wire);
    const Placed<float> sum(
        memory, std::vector<float>(static_cast<size_t>(count + offset + 1)));
    std::vector<const std::byte*> here_at, there_at;
    for (int piece = 0; piece < num_pieces; ++piece) {
      const int64_t at = (piece * kStride + offset) * bytes;
      here_at.push_back(wire.data() + at);
      there_at.push_back(there.data() + at);
    }
    ASSERT_TRUE(
        ops.sum_at_once(reduction, there_at, count,
                        reinterpret_cast<std::byte*>(sum.data() + offset)));
    std::vector<float> right(static_cast<size_t>(count));
    std::vector<std::byte> scratch(
        static_cast<size_t>(tree_scratch_bytes(reduction, num_pieces, count)));
    tree_sum(cpu_wire_ops(), reduction, here_at, count,
             reinterpret_cast<std::byte*>(right.data()), scratch.data());
    const std::vector<float> found = sum.get();
    for (size_t i = 0; i < right.size(); ++i)
      ASSERT_TRUE(same_bits(found[i + static_cast<size_t>(offset)], right[i]))
          << to_string(reduction) << " of " << num_pieces << ", " << i
          << " from " << offset;
    ASSERT_EQ(found.back(), 0.0F);
  };
  for (const Reduction reduction :
       {Reduction::kFp32Sum, Reduction::kFp32SumOfBf16}) {
    for (int num_pieces = 1; num_pieces <= 64; ++num_pieces)
      for (const int64_t count : {0, 1, 2, 7, 997})
        expect_sum(reduction, num_pieces, count, num_pieces % 5);
    for (int64_t offset = 0; offset < 64; ++offset)
      expect_sum(reduction, 8, kMost, offset);
  }
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
}  // namespace canzona::runtime::engine_wire_ops_cuda_test

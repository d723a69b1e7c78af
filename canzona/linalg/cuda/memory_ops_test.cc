#include "canzona/linalg/memory.h"

#include <gtest/gtest.h>

#include <limits>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/linalg/cuda_device.h"
#include "canzona/linalg/test_memory_ops.h"

namespace canzona::linalg::cuda_memory_ops_test {
namespace {

TEST(CudaMemoryOpsWithoutAGpu, SayWhy) {
  std::string why_not;
  if (find_cuda_device(&why_not)) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(memory_ops("cuda"), UsageError);
}

class CudaMemoryOps : public testing::Test {
 protected:
  void SetUp() override {
    std::string why_not;
    if (!find_cuda_device(&why_not)) GTEST_SKIP() << why_not;
  }
};

TEST_F(CudaMemoryOps, GiveTheBitsOfTheCpu) {
  expect_same_bits(memory_ops("cuda"), memory_ops("cpu"));
}

TEST_F(CudaMemoryOps, CopyBetweenAllKindsOfMemory) {
  const MemoryOps& ops = memory_ops("cuda");
  const auto values = any_bits<uint32_t>(100003, 1, ~0U);
  const int64_t bytes = 4 * 100003;
  const Placed<uint32_t> there(ops, values);
  const Placed<uint32_t> copy(ops, std::vector<uint32_t>(values.size()));
  ops.copy(reinterpret_cast<std::byte*>(copy.data()),
           reinterpret_cast<const std::byte*>(there.data()), bytes);
  EXPECT_EQ(copy.get(), values);
  std::vector<uint32_t> here(values.size());
  ops.copy(reinterpret_cast<std::byte*>(here.data()),
           reinterpret_cast<const std::byte*>(values.data()), bytes);
  EXPECT_EQ(here, values);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(there.data()) % 64, 0U);
}

TEST_F(CudaMemoryOps, MayWriteWhereTheyRead) {
  const MemoryOps& ops = memory_ops("cuda");
  const Placed<int64_t> sum(ops, {-1, 3});
  const Placed<int64_t> more(ops, {1, 2});
  ops.add_int64(sum.data(), sum.data(), more.data(), 2);
  EXPECT_EQ(sum.get(), (std::vector<int64_t>{0, 5}));
  ops.add_int64(sum.data(), sum.data(), sum.data(), 2);
  EXPECT_EQ(sum.get(), (std::vector<int64_t>{0, 10}));
}

TEST_F(CudaMemoryOps, ServeManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([i] {
      const MemoryOps& ops = memory_ops("cuda");
      const Placed<float> sum(ops, std::vector<float>(10000, 0));
      const Placed<float> one(ops,
                              std::vector<float>(10000, static_cast<float>(i)));
      for (int round = 0; round < 100; ++round)
        ops.add_fp32(sum.data(), sum.data(), one.data(), 10000);
      EXPECT_EQ(sum.get(),
                std::vector<float>(10000, 100 * static_cast<float>(i)));
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace canzona::linalg::cuda_memory_ops_test

#include "canzona/linalg/cuda/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/linalg/engine.h"

namespace canzona::linalg::device_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::ThrowsMessage;

TEST(CudaDevice, IsFoundAndDescribed) {
  ASSERT_TRUE(cuda_is_built());
  std::string why_not;
  const auto gpu = find_cuda_device(&why_not);
  ASSERT_TRUE(gpu) << why_not;
  EXPECT_EQ(why_not, "");
  EXPECT_NE(gpu->name, "");
  EXPECT_GE(gpu->major, 8);
  EXPECT_GT(gpu->num_multiprocessors, 0);
  EXPECT_GT(gpu->memory_bytes, int64_t{1} << 30);
  EXPECT_GT(gpu->l2_bytes, int64_t{1} << 20);
  EXPECT_GE(gpu->shared_memory_per_block, 48 << 10);
  EXPECT_THAT(gpu->driver, MatchesRegex("([0-9.]+, )?CUDA [0-9]+\\.[0-9]+"));
  EXPECT_THAT(gpu->runtime, MatchesRegex("[0-9]+\\.[0-9]+"));
}

TEST(CudaShare, IsAnEqualShareUntilItEnds) {
  const int all = usable_multiprocessors(0);
  for (const int count : {1, 2, 3, 4, 8}) {
    for (const int number : {0, count - 1, 0}) {
      const CudaShare share(number, count);
      const int usable = usable_multiprocessors(0);
      EXPECT_LE(usable * count, all);
      EXPECT_GT(usable * count, all - 8 * count);
    }
    EXPECT_EQ(usable_multiprocessors(0), all);
  }
}

// Conditional graphs, products and copies do the same in a share as outside it.
TEST(CudaShare, ChangesNoResult) {
  const auto work = [] {
    const auto engine = make_cuda_engine();
    EngineMemory memory(*engine);
    std::vector<float> values(10'000, 3);
    const auto run = memory.put(values);
    auto* flag = reinterpret_cast<int32_t*>(memory.zeros(4, DType::kFp32).data);
    for (int step = 0; step < 3; ++step)
      engine->repeat([&] {
        engine->if_zero(flag,
                        [&] { engine->scale(run, 0.1 * step + 1, 10'000); });
      });
    return memory.get<uint32_t>(run.data, 10'000);
  };
  const std::vector<uint32_t> expected = work();
  const CudaShare share(1, 4);
  EXPECT_EQ(work(), expected);
}

TEST(CudaShare, CannotBeTooSmall) {
  EXPECT_THAT([] { const CudaShare share(0, 1000); },
              ThrowsMessage<UsageError>(HasSubstr("into 1000 shares")));
  EXPECT_THROW(CudaShare(2, 2), InternalError);
}

TEST(CheckCuda, LetsSuccessPass) {
  EXPECT_NO_THROW(check_cuda(cudaSuccess, "cudaMalloc"));
}

TEST(CheckCuda, NamesTheCallAndCudasWords) {
  EXPECT_THAT([] { check_cuda(cudaErrorInvalidValue, "copy of bases"); },
              ThrowsMessage<InternalError>(
                  AllOf(HasSubstr("copy of bases: invalid argument"),
                        HasSubstr("cudaErrorInvalidValue"))));
}

TEST(CheckCuda, CallsAMissingGpuTheUsersMatter) {
  EXPECT_THAT([] { check_cuda(cudaErrorNoDevice, "cudaGetDeviceCount"); },
              ThrowsMessage<UsageError>(
                  HasSubstr("there is no GPU: cudaGetDeviceCount: ")));
}

TEST(CheckCuda, CallsFullMemoryTheUsersMatter) {
  void* data = nullptr;
  const size_t more_than_any_gpu_has = size_t{1} << 50;
  EXPECT_THAT(
      [&] { check_cuda(cudaMalloc(&data, more_than_any_gpu_has), "bases"); },
      ThrowsMessage<UsageError>("the GPU's memory is full: bases"));
  cudaGetLastError();
}

}  // namespace
}  // namespace canzona::linalg::device_test

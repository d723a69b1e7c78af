#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/linalg/cuda/test_support.h"

namespace canzona::linalg::engine_test {
namespace {

using testing::HasSubstr;

TEST(MakeCudaEngine, SaysSoWhereThereIsNoGpu) {
  std::string why_not;
  if (find_cuda_device(&why_not)) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(make_cuda_engine(), UsageError);
}

class CudaEngineTest : public GpuTest {};

TEST_F(CudaEngineTest, TellsWhatComputes) {
  EXPECT_EQ(gpu().kind(), "cuda");
  EXPECT_THAT(gpu().describe(), HasSubstr("compute "));
  EXPECT_THAT(gpu().describe(), HasSubstr("cuBLAS "));
}

TEST_F(CudaEngineTest, CopiesBothWaysAndSetsZeros) {
  const auto values = numbers<float>(1001, 1);
  const OnGpu<float> memory(gpu(), values);
  EXPECT_EQ(memory.get(), values);
  gpu().set_zero(memory.bytes() + 4, 8);
  auto expected = values;
  expected[1] = expected[2] = 0;
  EXPECT_EQ(memory.get(), expected);
}

TEST_F(CudaEngineTest, MoreScalarsThanItsRingHolds) {
  constexpr int64_t kCount = 40000;
  const OnGpu<double> memory(gpu(), std::vector<double>(kCount, 1.0));
  const auto ones = matrices(memory.data(), 1, 1, kCount);
  std::vector<double> expected(kCount, 1.0);
  for (int round = 1; round <= 20; ++round) {
    std::vector<double> added(kCount);
    for (size_t i = 0; i < added.size(); ++i) {
      added[i] = static_cast<double>(i % 97) * round;
      expected[i] += added[i];
    }
    gpu().add_diagonal(ones, added);
  }
  EXPECT_EQ(memory.get(), expected);
}

TEST_F(CudaEngineTest, WaitsForAnotherEngine) {
  const auto other = make_cuda_engine();
  constexpr int64_t kSide = 1500;
  const OnGpu<float> a(gpu(), numbers<float>(kSide * kSide, 1));
  const OnGpu<float> b(gpu(), std::vector<float>(kSide * kSide));
  const OnGpu<float> c(gpu(), std::vector<float>(kSide * kSide));
  const auto view = [](const OnGpu<float>& m) {
    return matrices(m.data(), kSide, kSide);
  };
  other->symmetric_product(view(b), 1, view(a), Op::kNone, 0);
  gpu().wait_for(*other);
  gpu().copy(view(c), view(b));
  const auto event = gpu().record();
  event->wait();
  EXPECT_TRUE(event->reached());
  EXPECT_EQ(c.get(), b.get());
  EXPECT_NE(c.get()[0], 0);
}

TEST_F(CudaEngineTest, DoesWorkIfAFlagIsZero) {
  const OnGpu<int32_t> flag(gpu(), std::vector<int32_t>{0});
  int done = 0;
  gpu().if_zero(flag.data(), [&] { ++done; });
  EXPECT_EQ(done, 1);
  flag.set({3});
  gpu().if_zero(flag.data(), [&] { ++done; });
  EXPECT_EQ(done, 1);
}

// Does everything an engine can do to a batch; returns all results.
template <class Real>
Batches<Real> everything(CudaEngine& engine, const Batch<Real>& input) {
  const int64_t n = input.rows();
  const int64_t count = input.count();
  Batches<Real> batches(6, Batch<Real>(n, n, count));
  batches[0] = input;
  batches[5] = input;
  batches.emplace_back(1, n, count);
  return on_gpu(engine, batches, [&](Engine& e, std::span<const Matrices> v) {
    const auto flags = std::make_unique<bool[]>(static_cast<size_t>(count));
    const std::span<bool> done(flags.get(), static_cast<size_t>(count));
    e.symmetric_product(v[1], 1, v[0], Op::kNone, 0);
    e.add_diagonal(v[1], 1);
    e.product(v[2], 1, v[0], Op::kTranspose, v[1], Op::kNone, 0);
    e.copy(v[3], v[1]);
    e.eigh(v[3], v[6], done);
    e.copy(v[4], v[1]);
    e.cholesky(v[4], done);
    e.solve_right_transposed(v[2], v[4]);
    e.cholesky_qr(v[5], done);
    e.commuting_product(v[0], v[1], v[1]);
    e.qr(v[0], done);
    e.scale_to_norm(v[2], v[1], 1e-3);
  });
}

template <class Real>
class CudaEngineBits : public GpuTest {};
TYPED_TEST_SUITE(CudaEngineBits, RealTypes);

// Odd sides give the matrices of a batch all kinds of alignment.
TYPED_TEST(CudaEngineBits, DoNotDependOnTheBatch) {
  for (int64_t side : {1, 7, 33, 75, 128, 257, 600}) {
    const int64_t count = side > 500 ? 2 : 5;
    Batch<TypeParam> batch(side, side, count);
    batch.randomise(static_cast<uint32_t>(side));
    const auto together = everything(this->gpu(), batch);
    for (int64_t which = 0; which < count; ++which) {
      const auto single = everything(this->gpu(), alone(batch, which));
      for (size_t i = 0; i < single.size(); ++i)
        EXPECT_TRUE(same_bits(plain(single[i]).values,
                              plain(together[i], which).values))
            << side << " matrix " << which << " result " << i;
    }
  }
}

TYPED_TEST(CudaEngineBits, DoNotDependOnTheEngineOrTheTime) {
  Batch<TypeParam> batch(70, 70, 3);
  batch.randomise(1);
  const auto expected = everything(this->gpu(), batch);
  CudaEngine other;
  for (CudaEngine* engine : {&other, &this->gpu()}) {
    const auto found = everything(*engine, batch);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(same_bits(found[i].storage(), expected[i].storage())) << i;
  }
}

TYPED_TEST(CudaEngineBits, TakeNoMoreMemoryTheSecondTime) {
  Batch<TypeParam> batch(70, 70, 3);
  everything(this->gpu(), batch.randomise(1));
  everything(this->gpu(), batch);
  this->gpu().synchronize();
  const int64_t reserved = this->gpu().arena().reserved();
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  for (int i = 0; i < 5; ++i) everything(this->gpu(), batch);
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(this->gpu().arena().reserved(), reserved);
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace canzona::linalg::engine_test

#include "canzona/linalg/cpu/cpu_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/linalg/cpu/features.h"
#include "canzona/linalg/cpu/test_support.h"
#include "canzona/linalg/cuda_device.h"

namespace canzona::linalg::cpu_engine_test {
namespace {

using testing::HasSubstr;

TEST(CpuEngine, TellsWhatComputes) {
  for (Bf16Kernel kernel : usable_bf16_kernels()) {
    const auto engine = make_cpu_engine(kernel);
    EXPECT_EQ(engine->kind(), "cpu");
    EXPECT_THAT(engine->describe(), HasSubstr("OpenBLAS "));
    EXPECT_THAT(engine->describe(),
                HasSubstr("bf16 by " + std::string(to_string(kernel))));
  }
}

// Kernels that widen bf16 first are no faster than fp32's products.
TEST(CpuFeatures, NameWhatMakesBf16Fast) {
  EXPECT_EQ(fast_bf16({}), "");
  EXPECT_EQ(fast_bf16({.avx2 = true, .avx512 = true}), "");
  EXPECT_EQ(fast_bf16({.avx512 = true, .avx512_bf16 = true}), "AVX-512 BF16");
  EXPECT_EQ(fast_bf16({.avx512 = true, .avx512_bf16 = true, .amx_bf16 = true}),
            "AMX");
#if !defined(__x86_64__)
  EXPECT_EQ(fast_bf16(cpu_features()), "");
#endif
}

TEST(CpuEngine, OffersEveryAlgebra) {
  const auto engine = make_cpu_engine();
  EXPECT_NE(&engine->algebra(DType::kFp32), &engine->algebra(DType::kFp64));
  EXPECT_NE(&engine->algebra(DType::kFp32), &engine->algebra(DType::kBf16));
}

TEST(CpuEngine, WithoutAGpuThereIsNoCudaEngine) {
  if (find_cuda_device(nullptr)) GTEST_SKIP() << "there is a GPU";
  EXPECT_THROW(make_cuda_engine(), UsageError);
}

// Does everything an engine can do to a batch; returns all results.
template <class Real>
std::vector<Real> everything(Engine& engine, const Batch<Real>& input) {
  const int64_t n = input.rows();
  const int64_t count = input.count();
  Batch<Real> a = input;
  Batch<Real> gram(n, n, count);
  Batch<Real> product(n, n, count);
  Batch<Real> vectors(n, n, count);
  Batch<Real> values(1, n, count);
  Batch<Real> factor(n, n, count);
  Batch<Real> by_cholesky = input;
  const auto flags = std::make_unique<bool[]>(static_cast<size_t>(count));
  const std::span<bool> succeeded(flags.get(), static_cast<size_t>(count));
  std::vector<double> norms(static_cast<size_t>(count));

  engine.symmetric_product(gram, 1, a, Op::kNone, 0);
  engine.add_diagonal(gram, 1);
  engine.product(product, 1, a, Op::kTranspose, gram, Op::kNone, 0);
  engine.copy(vectors, gram);
  engine.eigh(vectors, values, succeeded);
  engine.copy(factor, gram);
  engine.cholesky(factor, succeeded);
  engine.solve_right_transposed(product, factor);
  engine.cholesky_qr(by_cholesky, succeeded);
  engine.commuting_product(a, gram, gram);
  engine.qr(a, succeeded);
  engine.norms(product, norms);

  std::vector<Real> all;
  for (const Batch<Real>* one :
       {&a, &gram, &product, &vectors, &values, &factor, &by_cholesky})
    all.insert(all.end(), one->storage().begin(), one->storage().end());
  for (double norm : norms) all.push_back(static_cast<Real>(norm));
  return all;
}

template <class Real>
class CpuEngineBits : public testing::Test {
 protected:
  static constexpr int64_t kCount = 5;
  // One matrix of a batch, as a separate batch.
  static Batch<Real> alone(const Batch<Real>& batch, int64_t which) {
    Batch<Real> one(batch.rows(), batch.cols());
    one.fill([&](Real& x, int64_t, int64_t i, int64_t j) {
      x = batch.at(which, i, j);
    });
    return one;
  }
};
TYPED_TEST_SUITE(CpuEngineBits, RealTypes);

// Odd sides give the matrices of a batch all kinds of alignment.
TYPED_TEST(CpuEngineBits, DoNotDependOnTheBatch) {
  const auto engine = make_cpu_engine();
  for (int64_t side : {1, 7, 33, 75}) {
    Batch<TypeParam> batch(side, side, this->kCount);
    batch.randomise(static_cast<uint32_t>(side));
    const std::vector<TypeParam> together = everything(*engine, batch);
    for (int64_t which = 0; which < this->kCount; ++which) {
      const std::vector<TypeParam> single =
          everything(*engine, this->alone(batch, which));
      // Results are consecutive, each with all matrices of the batch.
      size_t in_batch = 0;
      size_t in_single = 0;
      const auto square = static_cast<size_t>(side * side);
      for (const size_t size :
           {square, square, square, square, static_cast<size_t>(side), square,
            square, size_t{1}}) {
        const auto begin = together.begin() + static_cast<ptrdiff_t>(in_batch) +
                           which * static_cast<ptrdiff_t>(size);
        const std::vector<TypeParam> from_batch(
            begin, begin + static_cast<ptrdiff_t>(size));
        const auto at = single.begin() + static_cast<ptrdiff_t>(in_single);
        EXPECT_TRUE(same_bits(
            from_batch,
            std::vector<TypeParam>(at, at + static_cast<ptrdiff_t>(size))))
            << side << " matrix " << which << " result at " << in_single;
        in_batch += size * static_cast<size_t>(this->kCount);
        in_single += size;
      }
    }
  }
}

TYPED_TEST(CpuEngineBits, DoNotDependOnOtherThreads) {
  Batch<TypeParam> batch(70, 70, 3);
  batch.randomise(1);
  const std::vector<TypeParam> expected = everything(*make_cpu_engine(), batch);
  constexpr size_t kThreads = 4;
  std::array<std::vector<TypeParam>, kThreads> found;
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&found, &batch, i] {
      const auto engine = make_cpu_engine();
      for (int round = 0; round < 3; ++round)
        found[i] = everything(*engine, batch);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : found) EXPECT_TRUE(same_bits(result, expected));
}

TYPED_TEST(CpuEngineBits, StagesAreThoseOfTheRun) {
  const auto engine = make_cpu_engine();
  std::vector<TypeParam> grad = {1, -2, 3};
  std::vector<TypeParam> m(3);
  std::vector<TypeParam> v(3);
  std::vector<TypeParam> out(3);
  std::vector<TypeParam> weights = {1, 1, 1};
  Engine::MomentumStage stage;
  stage.grad = run_of(std::as_const(grad).data());
  stage.momentum = run_of(m.data());
  stage.out = run_of(out.data());
  stage.blend = {0, 2, 1, 1};
  engine->momentum(stage, 3);
  EXPECT_THAT(m, testing::ElementsAre(2, -4, 6));
  EXPECT_THAT(out, testing::ElementsAre(3, -6, 9));
  engine->apply(run_of(weights.data()), run_of(std::as_const(out).data()),
                {2, 1, 4}, 3);
  EXPECT_THAT(weights, testing::ElementsAre(-4, 32, -28));
  AdamCoefficients adam;
  engine->adam(run_of(std::as_const(grad).data()), run_of(m.data()),
               run_of(v.data()), run_of(out.data()), adam, 3);
  EXPECT_THAT(out, testing::ElementsAre(1, -1, 1));
  const Engine::AdamRuns tensor{.grad = run_of(std::as_const(grad).data()),
                                .m = run_of(m.data()),
                                .v = run_of(v.data()),
                                .weights = run_of(weights.data()),
                                .count = 3};
  engine->adam_apply({&tensor, 1}, adam, {1, 4, 1});
  EXPECT_THAT(weights, testing::ElementsAre(-8, 36, -32));
  EXPECT_TRUE(engine->all_finite(run_of(weights.data()), 3));
  weights[2] = std::numeric_limits<TypeParam>::infinity();
  EXPECT_FALSE(engine->all_finite(run_of(weights.data()), 3));
}

TEST(CpuEngine, RoundsWeights) {
  const float from[] = {1.0F, -2.5F};
  uint16_t to[2] = {};
  make_cpu_engine()->round_weights(to, from, 2);
  EXPECT_EQ(to[0], 0x3f80);
  EXPECT_EQ(to[1], 0xc020);
}

}  // namespace
}  // namespace canzona::linalg::cpu_engine_test

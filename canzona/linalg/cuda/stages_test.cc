#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "canzona/linalg/cuda/test_support.h"

namespace canzona::cuda_stages_test {
namespace {

// Runs of the host and their copies on the GPU.
template <class Real>
class CudaStages : public GpuTest {
 protected:
  using Runs = std::vector<std::vector<Real>>;
  // Something done to runs, given in order.
  using Work = std::function<void(Engine&, const std::vector<Real*>&, int64_t)>;

  static Runs make_runs(int64_t count) {
    Runs runs;
    for (uint32_t seed : {1U, 2U, 3U, 4U, 5U})
      runs.push_back(numbers<Real>(count, seed));
    for (Real& x : runs[2]) x = std::fabs(x);  // a second moment
    return runs;
  }

  // The CPU's bits at every size and place.
  void expect_same_bits(const std::string& name, const Work& work) {
    for (int64_t count : {0, 1, 3, 4, 1027, 1000003})
      for (int64_t offset : {0, 1}) {
        Runs runs = make_runs(count);
        std::vector<std::unique_ptr<OnGpu<Real>>> copies;
        std::vector<Real*> on_gpu, on_cpu;
        for (auto& run : runs) {
          copies.push_back(
              std::make_unique<OnGpu<Real>>(this->gpu(), run, offset));
          on_gpu.push_back(copies.back()->data());
          on_cpu.push_back(run.data());
        }
        work(this->cpu(), on_cpu, count);
        work(this->gpu(), on_gpu, count);
        for (size_t i = 0; i < runs.size(); ++i)
          EXPECT_TRUE(same_bits(copies[i]->get(), runs[i]))
              << name << " of " << count << " at " << offset << ", run " << i;
      }
  }
};
TYPED_TEST_SUITE(CudaStages, RealTypes);

template <class Real>
ConstRun in(Real* data) {
  return run_of(static_cast<const Real*>(data));
}

constexpr Blend kBlend{0.95, 0.05, 0.1, 0.9};
constexpr Apply kApply{0.99, 0.02, 0.999};
constexpr AdamCoefficients kAdam{0.9, 0.1, 0.95, 0.05, 1.1, 0.2, 1.3, 1e-8};

TYPED_TEST(CudaStages, MomentumHasTheBitsOfTheCpu) {
  using Real = TypeParam;
  for (double l2 : {0.0, 0.1})
    for (bool momentum : {false, true})
      for (bool out : {false, true}) {
        if (!momentum && !out) continue;
        this->expect_same_bits(
            "momentum", [=](Engine& e, const std::vector<Real*>& r, int64_t n) {
              Engine::MomentumStage stage;
              stage.grad = in(r[0]);
              stage.weights = in(r[3]);
              stage.l2 = l2;
              if (momentum) stage.momentum = run_of(r[1]);
              if (out) stage.out = run_of(r[4]);
              stage.blend = kBlend;
              e.momentum(stage, n);
            });
      }
}

TYPED_TEST(CudaStages, ApplyHasTheBitsOfTheCpu) {
  using Real = TypeParam;
  this->expect_same_bits("apply",
                         [](Engine& e, const std::vector<Real*>& r, int64_t n) {
                           e.apply(run_of(r[3]), in(r[0]), kApply, n);
                         });
}

TYPED_TEST(CudaStages, CautiousApplyHasTheBitsOfTheCpu) {
  using Real = TypeParam;
  this->expect_same_bits("apply cautiously",
                         [](Engine& e, const std::vector<Real*>& r, int64_t n) {
                           Apply apply = kApply;
                           apply.cautious = true;
                           e.apply(run_of(r[3]), in(r[0]), apply, n);
                         });
}

TYPED_TEST(CudaStages, AdamHasTheBitsOfTheCpu) {
  using Real = TypeParam;
  for (bool moment : {false, true}) {
    this->expect_same_bits(
        "adam", [=](Engine& e, const std::vector<Real*>& r, int64_t n) {
          e.adam(in(r[0]), moment ? run_of(r[1]) : Run{}, run_of(r[2]),
                 run_of(r[4]), kAdam, n);
        });
    this->expect_same_bits(
        "adam over its gradient",
        [=](Engine& e, const std::vector<Real*>& r, int64_t n) {
          e.adam(in(r[0]), moment ? run_of(r[1]) : Run{}, run_of(r[2]),
                 run_of(r[0]), kAdam, n);
        });
    this->expect_same_bits(
        "adam_apply", [=](Engine& e, const std::vector<Real*>& r, int64_t n) {
          const Engine::AdamRuns tensor{
              .grad = in(r[0]),
              .m = moment ? run_of(r[1]) : Run{nullptr, DTypeOf<Real>::value},
              .v = run_of(r[2]),
              .weights = run_of(r[3]),
              .count = n};
          e.adam_apply({&tensor, 1}, kAdam, kApply);
        });
  }
}

TYPED_TEST(CudaStages, AdamOfManyTensorsIsThatOfEach) {
  using Real = TypeParam;
  // Cut at all kinds of places, with empty ones at both ends.
  const std::vector<int64_t> sizes = {0, 1, 8192, 0, 8193, 3, 100000, 5, 0};
  this->expect_same_bits(
      "many", [&](Engine& e, const std::vector<Real*>& r, int64_t n) {
        std::vector<Engine::AdamRuns> tensors;
        int64_t begin = 0;
        for (int64_t size : sizes) {
          size = std::min(size, n - begin);
          tensors.push_back({.grad = in(r[0] + begin),
                             .m = run_of(r[1] + begin),
                             .v = run_of(r[2] + begin),
                             .weights = run_of(r[3] + begin),
                             .count = size});
          begin += size;
        }
        e.adam_apply(tensors, kAdam, kApply);
      });
}

class CudaRounding : public GpuTest {};

TEST_F(CudaRounding, WeightsAndTheirRoundedCopiesAreThoseOfTheCpu) {
  for (int64_t count : {1, 7, 100001})
    for (int64_t offset : {0, 1}) {
      auto weights = numbers<float>(count, 1);
      const auto update = numbers<float>(count, 2);
      auto m = numbers<float>(count, 3), v = numbers<float>(count, 4);
      for (float& x : v) x = std::fabs(x);
      std::vector<uint16_t> rounded(static_cast<size_t>(count), 1);
      const OnGpu<float> w(gpu(), weights, offset), u(gpu(), update);
      const OnGpu<float> m2(gpu(), m), v2(gpu(), v);
      const OnGpu<uint16_t> r(gpu(), rounded, offset);
      const auto work = [&](Engine& e, float* p, const float* g, float* first,
                            float* second, uint16_t* copy) {
        e.apply(run_of(p), run_of(g), kApply, count, copy);
        const Engine::AdamRuns tensor{.grad = run_of(g),
                                      .m = run_of(first),
                                      .v = run_of(second),
                                      .weights = run_of(p),
                                      .count = count,
                                      .rounded = copy};
        e.adam_apply({&tensor, 1}, kAdam, kApply);
      };
      work(cpu(), weights.data(), update.data(), m.data(), v.data(),
           rounded.data());
      work(gpu(), w.data(), u.data(), m2.data(), v2.data(), r.data());
      EXPECT_EQ(w.get(), weights);
      EXPECT_EQ(r.get(), rounded);
    }
}

TEST_F(CudaRounding, TakesTheNearestAndTheEvenOne) {
  std::vector<float> values;
  for (uint32_t bits :
       {0x3f800000U, 0x3f808000U, 0x3f818000U, 0x3f808001U, 0x7f7fffffU,
        0xff800000U, 0x7f800001U, 0xffffffffU, 0x00000001U, 0x80008000U})
    values.push_back(std::bit_cast<float>(bits));
  std::vector<uint16_t> expected(values.size());
  const auto count = static_cast<int64_t>(values.size());
  const OnGpu<float> from(gpu(), values);
  const OnGpu<uint16_t> to(gpu(), expected);
  cpu().round_to_bf16(expected.data(), values.data(), count);
  gpu().round_to_bf16(to.data(), from.data(), count);
  EXPECT_EQ(to.get(), expected);
}

}  // namespace
}  // namespace canzona::cuda_stages_test

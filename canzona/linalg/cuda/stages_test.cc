#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "canzona/base/random.h"
#include "canzona/linalg/cuda/test_support.h"

namespace canzona::linalg::cuda_stages_test {
namespace {

// Runs of the host and their copies on the GPU.
template <class Real>
class CudaStages : public GpuTest {
 protected:
  using Runs = std::vector<std::vector<Real>>;
  // An operation on runs, given in order.
  using Work = std::function<void(Engine&, const std::vector<Real*>&, int64_t)>;

  static Runs make_runs(int64_t count) {
    Runs runs;
    for (uint32_t seed : {1U, 2U, 3U, 4U, 5U})
      runs.push_back(numbers<Real>(count, seed));
    for (Real& x : runs[2]) x = std::fabs(x);  // a second moment
    return runs;
  }

  // Expects the CPU's bits at every size and offset.
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
  // Runs are cut at all kinds of positions, and empty ones lie at both ends.
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

TEST_F(CudaRounding, TakesTheNearestWithHalvesAwayFromZero) {
  std::vector<float> values;
  for (uint32_t bits :
       {0x3f800000U, 0x3f808000U, 0x3f818000U, 0x3f808001U, 0x7f7fffffU,
        0xff800000U, 0x7f800001U, 0xffffffffU, 0x00000001U, 0x80008000U})
    values.push_back(std::bit_cast<float>(bits));
  std::vector<uint16_t> expected(values.size());
  const auto count = static_cast<int64_t>(values.size());
  const OnGpu<float> from(gpu(), values);
  const OnGpu<uint16_t> to(gpu(), expected);
  cpu().round_weights(expected.data(), values.data(), count);
  gpu().round_weights(to.data(), from.data(), count);
  EXPECT_EQ(to.get(), expected);
  for (const int64_t skipped : {0, 1}) {  // in vectors, and one by one
    const OnGpu<uint16_t> weights(gpu(), expected), rest(gpu(), expected);
    const OnGpu<float> back(gpu(), values);
    gpu().split_masters(weights.data() + skipped, rest.data() + skipped,
                        from.data() + skipped, count - skipped);
    EXPECT_EQ(weights.get(), expected);
    gpu().join_masters(back.data() + skipped, weights.data() + skipped,
                       rest.data() + skipped, count - skipped);
    const std::vector<float> found = back.get();
    for (size_t i = 0; i < values.size(); ++i)
      if (!std::isnan(values[i])) EXPECT_EQ(found[i], values[i]) << i;
  }
}

class CudaNarrow : public GpuTest {};

TEST_F(CudaNarrow, ConvertsAsACpuDoes) {
  for (const int64_t offset : {0, 1, 4})
    for (const int64_t gap : {0, 3, 4}) {
      constexpr int64_t kRows = 5, kCols = 300;
      const int64_t stride = kCols + gap;
      std::vector<float> wide(static_cast<size_t>(kRows * stride));
      for (size_t i = 0; i < wide.size(); ++i)
        wide[i] = uniform_at(3, i) * 1e-3F;
      std::vector<uint16_t> narrow(wide.size(), 1);
      const auto views = [&](float* w, uint16_t* n) {
        Matrices a = matrices(w, kRows, kCols), b = a;
        a.row_stride = b.row_stride = stride;
        b.data = reinterpret_cast<std::byte*>(n);
        b.dtype = DType::kBf16;
        return std::pair(a, b);
      };
      const OnGpu<float> w(gpu(), wide, offset);
      const OnGpu<uint16_t> n(gpu(), narrow, offset);
      const auto [a, b] = views(wide.data(), narrow.data());
      const auto [c, d] = views(w.data(), n.data());
      cpu().convert(b, a);
      gpu().convert(d, c);
      EXPECT_EQ(n.get(), narrow);
      cpu().convert(a, b);
      gpu().convert(c, d);
      EXPECT_EQ(w.get(), wide);
    }
}

TEST_F(CudaNarrow, WidensManyRuns) {
  std::vector<uint16_t> narrow(30000);
  for (size_t i = 0; i < narrow.size(); ++i)
    narrow[i] = static_cast<uint16_t>(bits_at(1, i));
  std::vector<float> wide(narrow.size(), 5);
  const OnGpu<uint16_t> n(gpu(), narrow);
  const OnGpu<float> w(gpu(), wide);
  const auto runs = [](float* to, const uint16_t* from) {
    return std::vector<Engine::Widened>{
        {to, from + 1, 9000}, {to + 9000, from, 0}, {to + 9001, from, 20001}};
  };
  const auto bits = [](const std::vector<float>& values) {
    std::vector<uint32_t> all;
    for (const float value : values)
      all.push_back(std::bit_cast<uint32_t>(value));
    return all;
  };
  cpu().widen(runs(wide.data(), narrow.data()));
  gpu().widen(runs(w.data(), n.data()));
  EXPECT_EQ(bits(w.get()), bits(wide));
}

TEST_F(CudaNarrow, LooksAtRunsAndScalesThem) {
  std::vector<uint16_t> narrow(20001);
  for (size_t i = 0; i < narrow.size(); ++i)
    narrow[i] = static_cast<uint16_t>(0x3F00 + bits_at(2, i) % 0x100);
  for (const int64_t offset : {0, 1}) {
    const OnGpu<uint16_t> n(gpu(), narrow, offset);
    const auto run = [](const uint16_t* data) {
      return Engine::Stretch{
          {reinterpret_cast<const std::byte*>(data), DType::kBf16}, 20001};
    };
    const Engine::Stretch here = run(narrow.data()), there = run(n.data());
    EXPECT_EQ(gpu().largest_bits({&there, 1}), cpu().largest_bits({&here, 1}));
    EXPECT_EQ(gpu().sum_of_squares({&there, 1}, 20),
              cpu().sum_of_squares({&here, 1}, 20));
    std::vector<uint16_t> scaled = narrow;
    const double factor = 0.3;
    const OnGpu<double> f(gpu(), {factor});
    cpu().scale_by({reinterpret_cast<std::byte*>(scaled.data()), DType::kBf16},
                   &factor, 20001);
    gpu().scale_by({n.bytes(), DType::kBf16}, f.data(), 20001);
    EXPECT_EQ(n.get(), scaled);
    const OnGpu<int32_t> first(gpu(), {7});
    gpu().find_nonfinite(first.data(), {&there, 1});
    EXPECT_EQ(first.get()[0], 0);
    scaled[20000] = 0x7FC0;
    n.set(scaled);
    gpu().find_nonfinite(first.data(), {&there, 1});
    EXPECT_EQ(first.get()[0], 1);
  }
}

class CudaGuard : public GpuTest {};

// These are plain calls, on memory that may differ each time.
TEST_F(CudaGuard, LeavesWorkOutIfTheNumberSaysSo) {
  const OnGpu<int32_t> flag(gpu(), {0});
  const OnGpu<float> a(gpu(), {1, 2, 3}), b(gpu(), {4, 5, 6});
  const int64_t graphs = gpu().num_graphs();
  const auto copy = [&] {
    gpu().copy(matrices(b.data(), 1, 3), matrices(a.data(), 1, 3));
    gpu().apply(run_of(a.data()), run_of(b.data()), {.step = 1}, 3, nullptr);
  };
  flag.set({2});
  gpu().guard(flag.data(), copy);
  EXPECT_EQ(b.get(), (std::vector<float>{4, 5, 6}));
  EXPECT_EQ(a.get(), (std::vector<float>{1, 2, 3}));
  flag.set({0});
  gpu().guard(flag.data(), copy);
  EXPECT_EQ(b.get(), (std::vector<float>{1, 2, 3}));
  EXPECT_EQ(a.get(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(gpu().num_graphs(), graphs);
}

TEST_F(CudaGuard, JudgesSharedNumbersAsACpuDoes) {
  for (const int64_t largest : {int64_t{5}, int64_t{kInfinityBits}})
    for (const int64_t other : {-7, -6})
      for (const int64_t least : {int64_t{kInfinityBits}, kUnlikeCode}) {
        const OnGpu<GradientNumbers> there(gpu(), {GradientNumbers{}});
        const OnGpu<int64_t> shared(gpu(), {0, 0, 0});
        const int64_t both[] = {7, other};
        gpu().put_numbers(shared.data(), {&largest, 1});
        gpu().put_numbers(shared.data() + 1, both);
        gpu().judge_shared(there.data(), shared.data(), least);
        GradientNumbers here;
        const int64_t mine[] = {largest, 7, other};
        cpu().judge_shared(&here, mine, least);
        EXPECT_EQ(there.get()[0].skip, here.skip);
        EXPECT_EQ(there.get()[0].largest, here.largest);
      }
  GradientNumbers numbers;
  numbers.squares[0] = 0xFEDCBA9876543210;
  numbers.squares[1] = 0x123456789;
  const OnGpu<GradientNumbers> there(gpu(), {numbers});
  const OnGpu<int64_t> limbs(gpu(), {0, 0, 0, 0});
  gpu().split_squares(limbs.data(), there.data());
  int64_t here[4];
  cpu().split_squares(here, &numbers);
  EXPECT_EQ(limbs.get(), (std::vector<int64_t>(here, here + 4)));
  there.set({GradientNumbers{}});
  gpu().join_squares(there.data(), limbs.data());
  EXPECT_EQ(there.get()[0].squares[0], numbers.squares[0]);
  EXPECT_EQ(there.get()[0].squares[1], numbers.squares[1]);
}

// Makes many more plain calls than the ring of their scalars can hold.
TEST_F(CudaGuard, GoesRoundTheRingOfScalars) {
  const OnGpu<float> x(gpu(), std::vector<float>(8, 1));
  for (int i = 0; i < 200000; ++i)
    gpu().scale(run_of(x.data()), i % 2 == 0 ? 2.0 : 0.5, 8);
  EXPECT_EQ(x.get(), std::vector<float>(8, 1));
}

}  // namespace
}  // namespace canzona::linalg::cuda_stages_test

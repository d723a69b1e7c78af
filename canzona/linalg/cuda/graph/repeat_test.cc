#include <gtest/gtest.h>

#include <limits>

#include "canzona/base/error.h"
#include "canzona/linalg/cuda/test_support.h"

namespace canzona::linalg::repeat_test {
namespace {

constexpr int64_t kSide = 96;
constexpr int64_t kSize = kSide * kSide;

// A small optimizer, whose scalars change from step to step.
class Model {
 public:
  explicit Model(CudaEngine& engine)
      : engine_(engine),
        weights_(engine, numbers<float>(kSize, 1)),
        grad_(engine, numbers<float>(kSize, 2)),
        momentum_(engine, std::vector<float>(kSize)),
        second_(engine, std::vector<float>(kSize)),
        rounded_(engine, std::vector<uint16_t>(kSize)),
        found_(engine, std::vector<int32_t>{0}) {}

  // Everything a step may do, issued to `engine`.
  void step(CudaEngine& engine, double t) {
    Arena::Scope scope(engine.arena());
    const Matrices u = engine.arena().matrices(DType::kFp32, kSide, kSide);
    const Matrices gram = engine.arena().matrices(DType::kFp32, kSide, kSide);
    engine.momentum({.grad = in(grad_),
                     .weights = in(weights_),
                     .l2 = 0.01 * t,
                     .momentum = run_of(momentum_.data()),
                     .out = Run{u.data, DType::kFp32},
                     .blend = {0.9, 0.1 * t, 0.2, 0.8}},
                    kSize);
    engine.symmetric_product(gram, 1 / t, u, Op::kNone, 0);
    engine.add_diagonal(gram, t);
    const Matrices y = engine.arena().matrices(DType::kFp32, kSide, kSide);
    engine.product(y, 0.5, gram, Op::kNone, u, Op::kNone, 0);
    engine.axpby(y, t, u, 0.25 * t);
    engine.scale_to_norm(y, u, 1e-8 * t);
    engine.adam({y.data, DType::kFp32}, {}, run_of(second_.data()),
                Run{u.data, DType::kFp32},
                {0, 1, 0.95, 0.05, 0, 1, 1 + t, 1e-8}, kSize);
    engine.apply(run_of(weights_.data()), {u.data, DType::kFp32},
                 {1 - 0.001 * t, 0.01 / t, 1}, kSize, rounded_.data());
    const Engine::AdamRuns tensor{.grad = in(grad_),
                                  .m = run_of(momentum_.data()),
                                  .v = run_of(second_.data()),
                                  .weights = run_of(weights_.data()),
                                  .count = kSize};
    engine.adam_apply({&tensor, 1}, {0.9, 0.1, 0.95, 0.05, t, 0, 1, 1e-8},
                      {1, 1e-3 * t, 1});
  }
  void guarded_step(CudaEngine& engine, double t) {
    const Engine::Stretch grad{in(grad_), kSize};
    engine.find_nonfinite(found_.data(), {&grad, 1});
    engine.if_zero(found_.data(), [&, t] { step(engine, t); });
  }

  void set_grad(uint32_t seed, bool bad) {
    auto values = numbers<float>(kSize, seed);
    if (bad) values[77] = std::numeric_limits<float>::quiet_NaN();
    grad_.set(values);
  }

  // Everything that a step changes.
  std::vector<float> state() const {
    engine_.synchronize();
    std::vector<float> all = weights_.get();
    for (const auto* part : {&momentum_, &second_}) {
      const auto values = part->get();
      all.insert(all.end(), values.begin(), values.end());
    }
    for (uint16_t x : rounded_.get()) all.push_back(x);
    return all;
  }

 private:
  static ConstRun in(const OnGpu<float>& run) {
    return run_of(static_cast<const float*>(run.data()));
  }

  CudaEngine& engine_;
  OnGpu<float> weights_, grad_, momentum_, second_;
  OnGpu<uint16_t> rounded_;
  OnGpu<int32_t> found_;
};

class CudaRepeat : public GpuTest {};

TEST_F(CudaRepeat, ReplaysWithOtherScalarsAndTheSameBits) {
  CudaEngine plain;
  Model eager(plain), replayed(gpu());
  for (int t = 1; t <= 20; ++t) {
    eager.step(plain, t);
    gpu().repeat([&] { replayed.step(gpu(), t); });
    ASSERT_TRUE(same_bits(replayed.state(), eager.state())) << "step " << t;
  }
  EXPECT_EQ(gpu().num_graphs(), 1) << "captured once, replayed since";
  EXPECT_EQ(plain.num_graphs(), 0);
}

// Has more launches in flight than there are rows for scalars.
TEST_F(CudaRepeat, MayBeFarAheadOfTheDevice) {
  CudaEngine plain;
  Model eager(plain), replayed(gpu());
  for (int t = 1; t <= 50; ++t) eager.step(plain, t);
  for (int t = 1; t <= 50; ++t) gpu().repeat([&] { replayed.step(gpu(), t); });
  EXPECT_TRUE(same_bits(replayed.state(), eager.state()));
}

TEST_F(CudaRepeat, SkipsAStepOnTheDevice) {
  CudaEngine plain;
  Model eager(plain), replayed(gpu());
  for (int t = 1; t <= 12; ++t) {
    const bool bad = t % 3 == 0;
    eager.set_grad(static_cast<uint32_t>(t), bad);
    replayed.set_grad(static_cast<uint32_t>(t), bad);
    const auto before = replayed.state();
    if (!bad) eager.step(plain, t);
    gpu().repeat([&] { replayed.guarded_step(gpu(), t); });
    ASSERT_TRUE(same_bits(replayed.state(), eager.state())) << "step " << t;
    EXPECT_EQ(same_bits(replayed.state(), before), bad);
  }
  EXPECT_EQ(gpu().num_graphs(), 1);
}

TEST_F(CudaRepeat, TheSameWorkOutsideAGraphSkipsToo) {
  CudaEngine plain;
  Model eager(plain), guarded(gpu());
  for (int t = 1; t <= 4; ++t) {
    const bool bad = t == 2;
    eager.set_grad(static_cast<uint32_t>(t), bad);
    guarded.set_grad(static_cast<uint32_t>(t), bad);
    if (!bad) eager.step(plain, t);
    guarded.guarded_step(gpu(), t);
    ASSERT_TRUE(same_bits(guarded.state(), eager.state())) << "step " << t;
  }
}

TEST_F(CudaRepeat, SeveralEnginesTakePart) {
  CudaEngine plain, second, third;
  Model eager_a(plain), eager_b(plain), a(gpu()), b(gpu());
  for (int t = 1; t <= 10; ++t) {
    eager_a.step(plain, t);
    eager_b.step(plain, 2.0 * t);
    eager_a.step(plain, 3.0 * t);
    gpu().repeat([&] {
      second.wait_for(gpu());
      third.wait_for(gpu());
      a.step(second, t);
      b.step(third, 2.0 * t);
      gpu().wait_for(second);
      gpu().wait_for(third);
      a.step(gpu(), 3.0 * t);
    });
    ASSERT_TRUE(same_bits(a.state(), eager_a.state())) << "step " << t;
    ASSERT_TRUE(same_bits(b.state(), eager_b.state())) << "step " << t;
  }
  EXPECT_EQ(gpu().num_graphs(), 1);
}

// Nothing waits explicitly for the last of them.
TEST_F(CudaRepeat, WhatComesAfterWaitsForAllThatTookPart) {
  CudaEngine plain, second;
  Model eager(plain), other(gpu());
  for (int t = 1; t <= 6; ++t) {
    for (int i = 1; i <= 3; ++i) eager.step(plain, t + i);
    other.step(second, t + 1);  // before, and without repeat
    gpu().repeat([&] {
      gpu().wait_for(second);
      other.step(gpu(), t + 2);
      second.wait_for(gpu());
      other.step(second, t + 3);
    });
    ASSERT_TRUE(same_bits(other.state(), eager.state())) << "step " << t;
  }
}

TEST_F(CudaRepeat, SeveralEnginesTakePartInACondition) {
  CudaEngine plain, second, third;
  Model eager_a(plain), eager_b(plain), a(gpu()), b(gpu());
  const OnGpu<int32_t> flag(gpu(), std::vector<int32_t>{0});
  for (int t = 1; t <= 9; ++t) {
    const bool skip = t % 4 == 0;
    flag.set({skip ? 5 : 0});
    eager_a.step(plain, t);
    if (!skip) {
      eager_a.step(plain, t + 1);
      eager_b.step(plain, t + 2);
    }
    eager_b.step(plain, t + 3);
    gpu().repeat([&] {
      second.wait_for(gpu());
      a.step(second, t);
      gpu().wait_for(second);
      gpu().if_zero(flag.data(), [&] {
        second.wait_for(gpu());
        third.wait_for(gpu());
        a.step(second, t + 1);
        b.step(third, t + 2);
        gpu().wait_for(second);
      });
      third.wait_for(gpu());
      b.step(third, t + 3);
    });
    ASSERT_TRUE(same_bits(a.state(), eager_a.state())) << "step " << t;
    ASSERT_TRUE(same_bits(b.state(), eager_b.state())) << "step " << t;
  }
  EXPECT_EQ(gpu().num_graphs(), 1);
}

TEST_F(CudaRepeat, ConditionsMayBeNested) {
  CudaEngine plain;
  Model eager(plain), nested(gpu());
  const OnGpu<int32_t> outer(gpu(), std::vector<int32_t>{0});
  const OnGpu<int32_t> inner(gpu(), std::vector<int32_t>{0});
  for (int t = 1; t <= 8; ++t) {
    const bool skip_outer = t % 2 == 0, skip_inner = t % 3 == 0;
    outer.set({skip_outer ? 1 : 0});
    inner.set({skip_inner ? 1 : 0});
    if (!skip_outer) {
      eager.step(plain, t);
      if (!skip_inner) eager.step(plain, t + 1);
    }
    gpu().repeat([&] {
      gpu().if_zero(outer.data(), [&] {
        nested.step(gpu(), t);
        gpu().if_zero(inner.data(), [&] { nested.step(gpu(), t + 1); });
      });
    });
    ASSERT_TRUE(same_bits(nested.state(), eager.state())) << "step " << t;
  }
}

TEST_F(CudaRepeat, OtherMemoryIsCapturedAnew) {
  CudaEngine plain;
  Model eager(plain), first(gpu()), second(gpu());
  for (int t = 1; t <= 6; ++t) {
    eager.step(plain, t);
    for (Model* model : {&first, &second})
      gpu().repeat([&] { model->step(gpu(), t); });
    ASSERT_TRUE(same_bits(first.state(), eager.state())) << "step " << t;
    ASSERT_TRUE(same_bits(second.state(), eager.state())) << "step " << t;
  }
  EXPECT_EQ(gpu().num_graphs(), 2);
}

// A larger request to the arena moves its blocks.
TEST_F(CudaRepeat, SurvivesAnArenaThatGrows) {
  CudaEngine plain;
  Model eager(plain), replayed(gpu());
  for (int t = 1; t <= 6; ++t) {
    eager.step(plain, t);
    gpu().repeat([&] { replayed.step(gpu(), t); });
    ASSERT_TRUE(same_bits(replayed.state(), eager.state())) << "step " << t;
    Arena::Scope scope(gpu().arena());
    gpu().arena().take(int64_t{t} << 20);
    Arena::Scope inner(gpu().arena());
    gpu().arena().take(int64_t{t} << 21);
  }
}

TEST_F(CudaRepeat, WorkThatAsksForResultsIsDoneOnce) {
  CudaEngine plain;
  Model eager(plain), model(gpu());
  for (int t = 1; t <= 3; ++t) {
    eager.step(plain, t);
    bool finite = false;
    gpu().repeat([&] {
      model.step(gpu(), t);
      const OnGpu<float> one(plain, std::vector<float>{1});
      finite = gpu().all_finite(run_of(one.data()), 1);
    });
    EXPECT_TRUE(finite);
    ASSERT_TRUE(same_bits(model.state(), eager.state())) << "step " << t;
  }
  EXPECT_EQ(gpu().num_graphs(), 0);
}

TEST_F(CudaRepeat, AfterAFailureTheEnginesWorkOn) {
  CudaEngine plain, second;
  Model eager(plain), model(gpu());
  int calls = 0;
  const auto failing = [&](int at) {
    return [&, at] {
      second.wait_for(gpu());
      model.step(second, 1);
      if (++calls == at) throw UsageError("on purpose");
    };
  };
  EXPECT_THROW(gpu().repeat(failing(1)), UsageError) << "in the dry run";
  // The arenas have grown, so one dry run is enough now.
  calls = 0;
  EXPECT_THROW(gpu().repeat(failing(2)), UsageError) << "in the capture";
  EXPECT_EQ(gpu().num_graphs(), 0);
  eager.step(plain, 3);
  gpu().repeat([&] { model.step(gpu(), 3); });
  EXPECT_TRUE(same_bits(model.state(), eager.state()));
}

TEST_F(CudaRepeat, TakesNoMoreMemoryFromStepToStep) {
  CudaEngine second;
  Model model(gpu());
  const auto step = [&](double t) {
    gpu().repeat([&] {
      second.wait_for(gpu());
      model.guarded_step(second, t);
      gpu().wait_for(second);
    });
  };
  for (int t = 1; t <= 3; ++t) step(t);
  gpu().synchronize();
  const int64_t reserved = gpu().arena().reserved() + second.arena().reserved();
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(cudaMemGetInfo(&before, &total), cudaSuccess);
  for (int t = 4; t <= 40; ++t) step(t);
  gpu().synchronize();
  ASSERT_EQ(cudaMemGetInfo(&after, &total), cudaSuccess);
  EXPECT_EQ(after, before);
  EXPECT_EQ(gpu().arena().reserved() + second.arena().reserved(), reserved);
  EXPECT_EQ(gpu().num_graphs(), 1);
}

}  // namespace
}  // namespace canzona::linalg::repeat_test

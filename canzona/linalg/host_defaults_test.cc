// Whatever a device leaves to the defaults of Engine gives the CPU's bits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <vector>

#include "canzona/base/error.h"
#include "canzona/base/test_allocations.h"
#include "canzona/linalg/number_stream.h"
#include "canzona/linalg/test_both_engines.h"

namespace canzona::linalg::host_defaults_test {
namespace {

using ::testing::ElementsAre;

struct Shape {
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t count = 1;
  int64_t gap = 0;
};

template <class Real>
Batch<Real> random_batch(const Shape& s, uint32_t seed) {
  Batch<Real> batch(s.rows, s.cols, s.count, s.gap);
  batch.randomise(seed);
  return batch;
}

// With eigenvalues above 0.
template <class Real>
Batch<Real> definite_batch(int64_t side, const Shape& s, uint32_t seed) {
  Batch<Real> batch(side, side, s.count, s.gap);
  batch.randomise(seed).symmetrise();
  return batch.fill([side](Real& x, int64_t, int64_t i, int64_t j) {
    if (i == j) x += static_cast<Real>(side);
  });
}

template <class Real>
std::vector<Real> random_run(int64_t count, uint32_t seed) {
  return random_batch<Real>({1, count}, seed).storage();
}

std::vector<double> scalars(int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(0.3 + 0.7 * static_cast<double>(i));
  return values;
}

template <class Work>
void for_each_shape(const Work& work) {
  for (const int64_t count : {0, 1, 3})
    for (const int64_t gap : {0, 2})
      for (const auto& [rows, cols] : std::vector<std::pair<int64_t, int64_t>>{
               {0, 0}, {0, 3}, {3, 0}, {1, 1}, {1, 9}, {33, 7}, {7, 33}}) {
        SCOPED_TRACE(testing::Message() << count << " of " << rows << "x"
                                        << cols << ", gap " << gap);
        work(Shape{rows, cols, count, gap});
      }
}

template <class Real>
class HostDefaults : public testing::Test {};
TYPED_TEST_SUITE(HostDefaults, RealTypes);

TYPED_TEST(HostDefaults, OfProductsAndDecompositions) {
  for_each_shape([](const Shape& s) {
    const auto a = random_batch<TypeParam>(s, 1);
    expect_cpu_bits([&](Bench& bench) {
      Engine& engine = bench.engine();
      const int64_t side = s.rows;
      const Matrices square = bench.put(definite_batch<TypeParam>(side, s, 2));
      const Matrices factor = bench.put(definite_batch<TypeParam>(side, s, 3));
      const Matrices c = bench.put(random_batch<TypeParam>(
          {.rows = side, .cols = side, .count = s.count}, 4));
      engine.commuting_product(c, square, square);
      engine.cholesky(factor, bench.verdicts(s.count));
      engine.solve_right_transposed(c, factor);
      const Matrices values =
          bench.put(random_batch<TypeParam>({1, side, s.count, s.gap}, 5));
      engine.eigh(square, values, bench.verdicts(s.count));
      if (s.rows < s.cols) return;
      engine.qr(bench.put(a), bench.verdicts(s.count));
      engine.cholesky_qr(bench.put(a), bench.verdicts(s.count));
    });
  });
}

TYPED_TEST(HostDefaults, OfDecompositionsThatFail) {
  expect_cpu_bits([](Bench& bench) {
    Batch<TypeParam> a(4, 4, 3, 1);
    a.fill([](TypeParam& x, int64_t k, int64_t i, int64_t j) {
      x = i == j && k != 1 ? TypeParam{1} : TypeParam{0};
    });
    const auto whole = bench.verdicts(3);
    bench.engine().cholesky(bench.put(a), whole);
    EXPECT_THAT(whole, ElementsAre(true, false, true));
  });
}

TYPED_TEST(HostDefaults, OfReductions) {
  for_each_shape([](const Shape& s) {
    const auto a = random_batch<TypeParam>(s, 1);
    auto b = random_batch<TypeParam>(s, 2);
    if (s.count > 1 && s.rows * s.cols > 0)
      b.at(1, 0, 0) = std::numeric_limits<TypeParam>::infinity();
    expect_cpu_bits([&](Bench& bench) {
      Engine& engine = bench.engine();
      const Matrices x = bench.put(a), y = bench.put(b);
      engine.norms(x, bench.results(s.count));
      engine.max_abs(y, bench.results(s.count));
      engine.traces(x, bench.results(s.count));
      engine.finite(y, bench.verdicts(s.count));
      engine.column_dots(
          bench.put(random_batch<TypeParam>({1, s.cols, s.count, s.gap}, 3)), x,
          x);
      for (const bool finite : {true, false}) {
        auto run = random_run<TypeParam>(s.cols, 4);
        if (!finite && s.cols > 0)
          run.back() = std::numeric_limits<TypeParam>::quiet_NaN();
        bench.note(engine.all_finite(bench.run(run), s.cols));
      }
    });
  });
}

TYPED_TEST(HostDefaults, OfElementWiseWork) {
  for_each_shape([](const Shape& s) {
    const auto a = random_batch<TypeParam>(s, 1),
               b = random_batch<TypeParam>(s, 2);
    expect_cpu_bits([&](Bench& bench) {
      Engine& engine = bench.engine();
      const std::vector<double> each = scalars(s.count);
      const Matrices x = bench.put(a), y = bench.put(b);
      engine.axpby(y, each, x, 0.25);
      engine.axpby(y, 0.5, y, 0);
      engine.add_diagonal(y, each);
      engine.set_identity(bench.put(a), each);
      const Matrices factors =
          bench.put(random_batch<TypeParam>({1, s.cols, s.count, s.gap}, 3));
      engine.scale_columns(bench.put(b), x, factors);
      engine.scale_columns(y, y, factors);
      engine.scale_to_norm(y, x, 1e-8);
      engine.limit_norms(y, 0.5, 1e-8);
      const canzona::Run scaled = bench.run(random_run<TypeParam>(s.cols, 4));
      engine.scale_by(scaled, bench.put(std::vector<double>{1.5}), s.cols);
      if (s.rows != 1 && s.cols != 1) return;
      const int64_t side = 5 * s.rows;
      const Shape square = {.rows = side, .cols = side, .gap = s.gap};
      const canzona::Run triangle =
          bench.run(random_run<TypeParam>(side * (side + 1) / 2, 5));
      engine.take_triangle(triangle,
                           bench.put(random_batch<TypeParam>(square, 6)));
      engine.put_triangle(bench.put(random_batch<TypeParam>(square, 7)),
                          triangle);
    });
  });
}

TYPED_TEST(HostDefaults, OfSortedValues) {
  for (const int64_t length : {0, 1, 2, 40})
    for (const int64_t count : {1, 3})
      expect_cpu_bits([&](Bench& bench) {
        Engine& engine = bench.engine();
        const Shape row = {1, length, count, 1};
        auto some = random_batch<TypeParam>(row, 1);
        if (length > 3) some.at(0, 0, 3) = some.at(0, 0, 1);
        const Matrices values = bench.put(some);
        std::vector<int64_t*> orders;
        for (const bool falling : {false, true}) {
          orders.push_back(bench.put(
              std::vector<int64_t>(static_cast<size_t>(length * count))));
          engine.sort({orders.back(), length, count}, values, falling);
        }
        const Shape square = {length, length, count, 2};
        const Matrices from = bench.put(random_batch<TypeParam>(square, 2));
        const Matrices to = bench.put(random_batch<TypeParam>(square, 3));
        engine.permute_columns(to, from, Orders{orders[0], length, count});
        engine.permute_rows(from, to, Orders{orders[1], length, 1});
        const Matrices roots = bench.put(some);
        engine.inverse_roots(roots, values, 0.5, 0.25);
        engine.raise_values(values, scalars(count), true, -0.25);
        engine.raise_values(roots, scalars(count), false, 0.5);
      });
}

TYPED_TEST(HostDefaults, OfConversions) {
  using Other =
      std::conditional_t<std::is_same_v<TypeParam, float>, double, float>;
  for_each_shape([](const Shape& s) {
    expect_cpu_bits([&](Bench& bench) {
      const Matrices from = bench.put(random_batch<TypeParam>(s, 1));
      const Matrices to = bench.put(random_batch<Other>(s, 2));
      bench.engine().convert(to, from);
      bench.engine().convert(from, to);
    });
  });
}

TYPED_TEST(HostDefaults, OfStages) {
  for (const int64_t count : {0, 1, 1000})
    expect_cpu_bits([&](Bench& bench) {
      Engine& engine = bench.engine();
      const auto fresh = [&](uint32_t seed) {
        return bench.run(random_run<TypeParam>(count, seed));
      };
      const canzona::Run grad = fresh(1), weights = fresh(2),
                         momentum = fresh(3);
      auto squares = random_run<TypeParam>(count, 4);
      for (TypeParam& x : squares) x *= x;
      const canzona::Run v = bench.run(squares);
      engine.adam(grad, {}, v, fresh(5), {.from_moment = 0, .from_grad = 1},
                  count);
      const Engine::MomentumStage stage = {.grad = grad,
                                           .weights = weights,
                                           .l2 = 0.1,
                                           .momentum = momentum,
                                           .out = fresh(6),
                                           .blend = {0.9, 0.1, 0.2, 0.8}};
      engine.momentum(stage, count);
      engine.momentum({.grad = grad, .momentum = momentum}, count);
      engine.momentum({.grad = grad, .out = fresh(7)}, count);
      engine.apply(weights, grad, {0.99, 0.1, 1, true}, count);
      const AdamCoefficients adam = {0.9, 0.1, 0.99, 0.01, 1, 0, 1.1, 1e-8};
      engine.adam(grad, momentum, v, grad, adam, count);
      const std::vector<Engine::AdamRuns> tensors = {
          {grad, momentum, v, weights, count},
          {grad, {}, v, fresh(8), count / 2}};
      engine.adam_apply(tensors, adam, {0.99, 0.1, 1});
    });
}

// 16-bit copies are of fp32.
TEST(HostDefaultsOfBf16, RoundAndWiden) {
  for (const int64_t count : {0, 1, 1000})
    expect_cpu_bits([&](Bench& bench) {
      Engine& engine = bench.engine();
      const auto rounded = [&] {
        return bench.put(std::vector<uint16_t>(static_cast<size_t>(count)));
      };
      const auto matrix = [&](uint16_t* data) {
        return Matrices{reinterpret_cast<std::byte*>(data),
                        DType::kBf16,
                        1,
                        count,
                        count,
                        1,
                        count,
                        nullptr};
      };
      const canzona::Run x = bench.run(random_run<float>(count, 1));
      auto* const numbers = reinterpret_cast<float*>(x.data);
      uint16_t* const narrow = rounded();
      engine.round_weights(narrow, numbers, count);
      uint16_t* const upper = rounded();
      uint16_t* const rest = rounded();
      engine.split_masters(upper, rest, numbers, count);
      engine.join_masters(numbers, upper, rest, count);
      engine.apply(x, x, {1, 0.1, 1}, count, rounded());
      const canzona::Run v =
          bench.run(std::vector<float>(static_cast<size_t>(count)));
      const Engine::AdamRuns tensor = {x, {}, v, x, count, rounded()};
      engine.adam_apply({&tensor, 1}, {.from_moment = 0, .from_grad = 1},
                        {1, 0.1, 1});
      engine.convert(matrix(rounded()), matrices(numbers, 1, count));
      engine.scale_by({reinterpret_cast<std::byte*>(narrow), DType::kBf16},
                      bench.put(std::vector<double>{0.7}), count);
      const Engine::Widened wide = {numbers, narrow, count};
      engine.widen({&wide, 1});
    });
}

// Runs of fp32 and bf16, the last with a value that may not be finite.
std::vector<Engine::Stretch> gradients(Bench& bench, float last) {
  auto values = random_run<float>(1000, 2);
  values.back() = last;
  const canzona::Run wide = bench.run(values);
  uint16_t* const narrow = bench.put(std::vector<uint16_t>(500));
  bench.engine().round_weights(narrow,
                               reinterpret_cast<const float*>(wide.data), 500);
  return {{bench.run(random_run<float>(1, 1)), 1},
          {{reinterpret_cast<std::byte*>(narrow), DType::kBf16}, 500},
          {wide, 0},
          {wide, 1000}};
}

TEST(HostDefaultsOfGradients, LookAtRuns) {
  for (const float last : {2.5F, std::numeric_limits<float>::infinity()})
    expect_cpu_bits([&](Bench& bench) {
      Engine& engine = bench.engine();
      const auto runs = gradients(bench, last);
      engine.find_nonfinite(bench.put(std::vector<int32_t>{7}), runs);
      engine.find_nonfinite(bench.put(std::vector<int32_t>{7}), {});
      bench.note(engine.largest_bits(runs));
      bench.note(engine.largest_bits({}));
      const WideSum sum = engine.sum_of_squares(std::span(runs).first(3), 20);
      bench.note(static_cast<double>(sum.low));
      bench.note(static_cast<double>(sum.high));
      const std::vector<Engine::ScaledStretch> scaled = {
          {bench.run(random_run<float>(100, 3)), 100},
          {bench.run(random_run<float>(1, 4)), 1}};
      bench.note(engine.scale_and_look(scaled, 0.3));
    });
}

TEST(HostDefaultsOfGradients, ScaleAndLook) {
  expect_cpu_bits([](Bench& bench) {
    const std::vector<Engine::ScaledStretch> scaled = {
        {bench.run(random_run<float>(100, 3)), 100}};
    bench.engine().scale_and_find_largest(
        bench.put(std::vector<GradientNumbers>(1)), scaled, 20);
  });
}

// The CPU has these defaults, too, so its bits alone prove nothing.
TEST(HostDefaultsOfGradients, FindNormAndFactor) {
  const auto numbers_of = [](Bench& bench, const std::vector<float>& values) {
    Engine& engine = bench.engine();
    const Engine::Stretch run = {bench.run(values), std::ssize(values)};
    auto* const there = bench.put(std::vector<GradientNumbers>(1));
    auto* const shared = bench.put(std::vector<int64_t>(3));
    engine.find_largest(there, {&run, 1});
    engine.raise(shared, &there->largest);
    engine.judge_shared(there, shared, kInfinityBits);
    engine.add_squares(there, {&run, 1});
    engine.clip(there, 2.5);
    return EngineMemory(engine).get<GradientNumbers>(
        reinterpret_cast<const std::byte*>(there), 1)[0];
  };
  expect_cpu_bits([&](Bench& bench) {
    const GradientNumbers clipped = numbers_of(bench, {3, -4});
    EXPECT_EQ(clipped.largest, std::bit_cast<uint32_t>(4.0F));
    EXPECT_EQ(clipped.norm, 5);
    EXPECT_NEAR(clipped.factor, 0.5, 1e-6);
    EXPECT_EQ(clipped.is_whole, 0);
    EXPECT_EQ(clipped.skip, 0);
    const GradientNumbers whole = numbers_of(bench, {0.5, 0});
    EXPECT_EQ(whole.norm, 0.5);
    EXPECT_EQ(whole.factor, 1);
    EXPECT_EQ(whole.is_whole, 1);
    const GradientNumbers skipped =
        numbers_of(bench, {1, std::numeric_limits<float>::infinity()});
    EXPECT_EQ(skipped.is_finite, 0);
    EXPECT_EQ(skipped.skip, 1);
    EXPECT_EQ(skipped.norm, 0);
    EXPECT_EQ(skipped.factor, 1);
    EXPECT_EQ(numbers_of(bench, {}).norm, 0);
  });
}

TEST(HostDefaultsOfGradients, ShareNumbersAndCodes) {
  expect_cpu_bits([](Bench& bench) {
    Engine& engine = bench.engine();
    EngineMemory memory(engine);
    const auto words = [&](const int64_t* there, int64_t count) {
      return memory.get<int64_t>(reinterpret_cast<const std::byte*>(there),
                                 count);
    };
    GradientNumbers number;
    number.squares[0] = 0x500000006;
    number.squares[1] = 0x700000008;
    auto* const numbers = bench.put(std::vector<GradientNumbers>{number});
    auto* const limbs = bench.put(std::vector<int64_t>(4));
    engine.split_squares(limbs, numbers);
    EXPECT_THAT(words(limbs, 4), ElementsAre(6, 5, 8, 7));
    engine.put_numbers(limbs, std::vector<int64_t>{int64_t{1} << 32, 5, 8, 7});
    engine.join_squares(numbers, limbs);
    engine.split_squares(limbs, numbers);
    EXPECT_THAT(words(limbs, 4), ElementsAre(0, 6, 8, 7));
    engine.raise(limbs, limbs + 1);
    engine.raise(limbs + 3, limbs);
    EXPECT_THAT(words(limbs, 4), ElementsAre(6, 6, 8, 7));
    auto* const code = bench.put(std::vector<int64_t>{0});
    for (const int32_t found : {0, 2, 1})
      engine.keep_first_code(code, bench.put(std::vector<int32_t>{found}),
                             std::vector<int64_t>{70, 80});
    EXPECT_THAT(words(code, 1), ElementsAre(80));
    const auto skips = [&](const std::vector<int64_t>& shared, int64_t least) {
      engine.judge_shared(numbers, bench.put(shared), least);
      return memory
          .get<GradientNumbers>(reinterpret_cast<const std::byte*>(numbers), 1)
          .front()
          .skip;
    };
    EXPECT_EQ(skips({99, 5, -5}, 100), 0);
    EXPECT_EQ(skips({100, 5, -5}, 100), 1);
    EXPECT_EQ(skips({1, 5, -4}, 100), 1);
  });
}

TEST(HostDefaultsOfOrder, WaitForTheDevice) {
  MinimalEngine engine(1), other(1);
  const auto waits_of = [](MinimalEngine& one, const auto& work) {
    const int64_t before = one.waits();
    work();
    return one.waits() - before;
  };
  EXPECT_EQ(waits_of(other, [&] { engine.wait_for(other); }), 1);
  EXPECT_EQ(waits_of(engine,
                     [&] {
                       const auto event = engine.record();
                       EXPECT_TRUE(event->reached());
                       engine.wait_until(*event);
                     }),
            1);
  EXPECT_EQ(engine.make_lane(), nullptr);
  Bench bench(engine);
  const int32_t* const number = bench.put(std::vector<int32_t>{7});
  const auto notice = engine.make_notice();
  notice->post(engine, number);
  EXPECT_EQ(notice->wait(), 7);
  for (const int32_t flag : {0, 3}) {
    int calls = 0;
    const int32_t* const there = bench.put(std::vector<int32_t>{flag});
    engine.if_zero(there, [&] { ++calls; });
    engine.guard(there, [&] { ++calls; });
    EXPECT_EQ(calls, flag == 0 ? 2 : 0);
  }
}

TEST(HostDefaultsOfNumbers, AreGenerated) {
  for (const int64_t count : {0, 1, 5000})
    expect_cpu_bits([&](Bench& bench) {
      const NumberRows rows = {.first = 3,
                               .count = count,
                               .rows = 2,
                               .stream_stride = 7,
                               .row_stride = count + 1};
      float* const to = bench.put(
          std::vector<float>(static_cast<size_t>(2 * (count + 1)), -1));
      fill_numbers(bench.engine(), to, {.seed = 5}, rows);
    });
}

// Columns beside the view may be another engine's, which is writing them now.
TEST(HostDefaultsOfMatrices, LeaveWhatIsBetweenTheRows) {
  class Counting final : public MinimalEngine {
   public:
    using MinimalEngine::MinimalEngine;
    void upload(std::byte* to, const std::byte* from, int64_t bytes) override {
      uploaded += bytes;
      MinimalEngine::upload(to, from, bytes);
    }
    int64_t uploaded = 0;
  };
  Counting engine(1);
  Bench bench(engine);
  const Matrices gaps = bench.put(random_batch<float>({5, 3, 2, 4}, 1));
  engine.uploaded = 0;
  engine.set_identity(gaps, 1.0);
  EXPECT_EQ(engine.uploaded, 5 * 3 * 2 * 4);
}

TEST(HostDefaultsOfMatrices, KeepTheChecksOfTheCpu) {
  MinimalEngine engine(1);
  Bench bench(engine);
  const Matrices wide = bench.put(random_batch<float>({2, 3}, 1));
  EXPECT_THROW(engine.cholesky(wide, bench.verdicts(1)), InternalError);
  EXPECT_THROW(engine.norms(wide, bench.results(2)), InternalError);
  engine.limit_norms(wide, 0.5, 0);
  const auto norm = bench.results(1);
  engine.norms(wide, norm);
  EXPECT_NEAR(norm[0], 0.5, 1e-6);
}

TEST(HostDefaultsOfMatrices, AllocateNothingAfterTheFirstUse) {
  MinimalEngine engine(1);
  Bench bench(engine);
  const Matrices a = bench.put(definite_batch<double>(30, {.count = 2}, 1));
  const Matrices values = bench.put(random_batch<double>({1, 30, 2}, 2));
  const canzona::Run run = bench.run(random_run<float>(100000, 3));
  const auto succeeded = bench.verdicts(2);
  const auto work = [&] {
    engine.eigh(a, values, succeeded);
    engine.scale_columns(a, a, values);
    engine.apply(run, run, {1, 0.1, 1}, 100000);
    engine.set_identity(a, 2.0);
  };
  work();
  const int64_t before = num_allocations();
  work();
  EXPECT_EQ(num_allocations(), before);
}

}  // namespace
}  // namespace canzona::linalg::host_defaults_test

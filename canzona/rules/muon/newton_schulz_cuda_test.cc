// Newton–Schulz on a GPU against the same schedule in fp64 on the CPU.
#include "canzona/linalg/engine.h"
#include "canzona/rules/muon/newton_schulz.h"

#include <gtest/gtest.h>

#include "canzona/linalg/lanes.h"
#include "canzona/rules/muon/test_stress.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/test_device.h"

namespace canzona::rules::newton_schulz_cuda_test {
namespace {

struct Variant {
  const char* form;
  const char* precision;
  double tolerance;  // |O - O64| / |O64| on Gaussian matrices
};

std::vector<float> noise(int64_t count, uint64_t seed) {
  Stream s(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = static_cast<float>(s.normal());
  return values;
}

MuonFacts facts_of(const char* device, const char* form, const char* precision,
                   const std::string& coefficients = "simple") {
  return MuonFacts(RuleOptions{{"device", device},
                               {"coefficients", coefficients},
                               {"newton_schulz", form},
                               {"precision", precision},
                               {"epsilon", "0"}});
}

std::vector<double> exact(const std::vector<float>& in, int64_t rows,
                          int64_t cols) {
  const std::vector<double> wide(in.begin(), in.end());
  std::vector<double> out(in.size());
  const auto engine = make_cpu_engine();
  orthogonalize(*engine, facts_of("cpu", "symmetric", "fp64"),
                matrices(wide.data(), rows, cols),
                matrices(out.data(), rows, cols));
  return out;
}

std::vector<float> on_gpu(Engine& engine, const MuonFacts& facts,
                          const std::vector<float>& in, int64_t rows,
                          int64_t cols, int64_t count) {
  EngineMemory device(engine);
  const Run from = device.put(in);
  const Run to = device.put(std::vector<float>(in.size(), 7.0F));
  orthogonalize(engine, facts, as_matrices(ConstRun(from), rows, cols, count),
                as_matrices(to, rows, cols, count));
  return device.get<float>(to.data, std::ssize(in));
}

double relative_error(const std::vector<float>& got,
                      const std::vector<double>& expected) {
  double difference = 0, total = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(got[i]) - expected[i];
    difference += d * d;
    total += expected[i] * expected[i];
  }
  return std::sqrt(difference / total);
}

// Computed on several threads, because there are many matrices.
std::vector<double> largest_singular_values(const std::vector<float>& all,
                                            int64_t rows, int64_t cols,
                                            size_t count) {
  std::vector<double> tops(count);
  Lanes lanes(16, [] { return make_cpu_engine(); });
  lanes.for_each(static_cast<int64_t>(count), [&](Engine&, int64_t i) {
    PlainMatrix o(rows, cols);
    const auto begin = all.begin() + i * rows * cols;
    o.values.assign(begin, begin + rows * cols);
    tops[static_cast<size_t>(i)] = largest_singular_value(o);
  });
  return tops;
}

class NewtonSchulzOnGpu : public testing::TestWithParam<Variant> {
 protected:
  void SetUp() override {
    CANZONA_NEEDS_GPU();
    engine_ = make_cuda_engine();
  }
  MuonFacts facts() const {
    return facts_of("cuda", GetParam().form, GetParam().precision);
  }

  std::unique_ptr<Engine> engine_;
};

TEST_P(NewtonSchulzOnGpu, AgreesWithFp64OnAllKindsOfShapes) {
  const std::pair<int64_t, int64_t> shapes[] = {
      {1, 1},     {1, 7},     {7, 1},     {1, 4096},  {4096, 1},
      {2, 3},     {8, 8},     {33, 70},   {70, 33},   {64, 64},
      {100, 300}, {300, 100}, {127, 129}, {129, 127}, {128, 512},
      {255, 257}, {256, 640}, {640, 256}, {384, 385}, {500, 1000}};
  for (const auto& [m, n] : shapes) {
    const std::vector<float> in = noise(m * n, 3);
    const auto got = on_gpu(*engine_, facts(), in, m, n, 1);
    const double tolerance =
        GetParam().tolerance * (std::min(m, n) < 32 ? 4 : 1);
    EXPECT_LE(relative_error(got, exact(in, m, n)), tolerance) << m << "x" << n;
  }
}

TEST_P(NewtonSchulzOnGpu, BitsDependNeitherOnBatchNorOnPlace) {
  for (const auto& [m, n] :
       {std::pair<int64_t, int64_t>{96, 200}, {200, 96}, {130, 130}, {1, 40}}) {
    constexpr int64_t kCount = 7;
    const std::vector<float> in = noise(m * n * kCount, 5);
    const auto together = on_gpu(*engine_, facts(), in, m, n, kCount);
    for (int64_t i = 0; i < kCount; ++i) {
      const std::vector<float> one(in.begin() + i * m * n,
                                   in.begin() + (i + 1) * m * n);
      const std::vector<float> part(together.begin() + i * m * n,
                                    together.begin() + (i + 1) * m * n);
      EXPECT_EQ(on_gpu(*engine_, facts(), one, m, n, 1), part)
          << m << "x" << n << " number " << i;
    }
  }
}

TEST_P(NewtonSchulzOnGpu, TakesThousandsOfSmallMatrices) {
  constexpr int64_t kCount = 4096, kRows = 24, kCols = 40;
  const std::vector<float> in = noise(kCount * kRows * kCols, 8);
  const auto got = on_gpu(*engine_, facts(), in, kRows, kCols, kCount);
  for (int64_t i : {int64_t{0}, kCount / 2, kCount - 1}) {
    const auto begin = i * kRows * kCols;
    const std::vector<float> one(in.begin() + begin,
                                 in.begin() + begin + kRows * kCols);
    const std::vector<float> part(got.begin() + begin,
                                  got.begin() + begin + kRows * kCols);
    EXPECT_LE(relative_error(part, exact(one, kRows, kCols)),
              4 * GetParam().tolerance);
    EXPECT_EQ(on_gpu(*engine_, facts(), one, kRows, kCols, 1), part);
  }
}

TEST_P(NewtonSchulzOnGpu, ZerosStayAndTinyOrHugeOnesDoNotLeaveTheRange) {
  const std::vector<float> in = noise(40 * 60, 2);
  const auto expected = exact(in, 40, 60);
  for (double scale : {1e-36, 1e-20, 1.0, 1e20, 1e34}) {
    std::vector<float> scaled = in;
    for (float& x : scaled) x *= static_cast<float>(scale);
    EXPECT_LE(
        relative_error(on_gpu(*engine_, facts(), scaled, 40, 60, 1), expected),
        4 * GetParam().tolerance)
        << scale;
  }
  const std::vector<float> zeros(40 * 60, 0.0F);
  EXPECT_EQ(on_gpu(*engine_, facts(), zeros, 40, 60, 1), zeros);
}

// Every second matrix of such a batch is not aligned to 16 bytes.
TEST(NewtonSchulzInFp64OnGpu, TakesBatchesOfOddSizes) {
  CANZONA_NEEDS_GPU();
  const auto engine = make_cuda_engine();
  constexpr int64_t kRows = 3, kCols = 5, kCount = 4;
  const std::vector<float> single = noise(kRows * kCols * kCount, 6);
  const std::vector<double> in(single.begin(), single.end());
  EngineMemory device(*engine);
  const canzona::Run from = device.put(in);
  const canzona::Run to = device.put(std::vector<double>(in.size()));
  orthogonalize(*engine, facts_of("cuda", "symmetric", "fp64"),
                as_matrices(ConstRun(from), kRows, kCols, kCount),
                as_matrices(to, kRows, kCols, kCount));
  const auto got = device.get<double>(to.data, std::ssize(in));
  for (int64_t i = 0; i < kCount; ++i) {
    const auto begin = i * kRows * kCols;
    const auto expected =
        exact({single.begin() + begin, single.begin() + begin + kRows * kCols},
              kRows, kCols);
    for (int64_t k = 0; k < kRows * kCols; ++k)
      EXPECT_NEAR(got[static_cast<size_t>(begin + k)],
                  expected[static_cast<size_t>(k)], 1e-12);
  }
}

// The whole stress set, in one batch.
TEST_P(NewtonSchulzOnGpu, NeverBlowsUpADirection) {
  constexpr int64_t kRows = 128, kCols = 384;
  for (const CoefficientSet& set : coefficient_sets()) {
    const bool short_numbers = std::string(GetParam().precision) != "fp32";
    if (!set.hazard.empty()) continue;
    // The set has no headroom above 1 for rounding errors.
    if (set.name == "cans" && short_numbers) continue;
    std::vector<float> all;
    std::vector<std::string> names;
    for (uint64_t seed = 1; seed <= 4; ++seed)
      for (const StressCase& hard : stress_cases(kRows, kCols, seed)) {
        names.push_back(hard.name);
        all.insert(all.end(), hard.matrix.values.begin(),
                   hard.matrix.values.end());
      }
    const MuonFacts facts = facts_of(
        "cuda", GetParam().form, GetParam().precision, std::string(set.name));
    const auto out = on_gpu(*engine_, facts, all, kRows, kCols,
                            static_cast<int64_t>(names.size()));
    const std::vector<double> tops =
        largest_singular_values(out, kRows, kCols, names.size());
    for (size_t i = 0; i < names.size(); ++i)
      EXPECT_LE(tops[i], 1.35) << set.name << ": " << names[i];
  }
}

// Small matrices of rank one or with a condition number of 1e6 and more, one
// shape at a time. bf16 computes them in fp32.
TEST_P(NewtonSchulzOnGpu, SmallOnesStayCloseToFp64) {
  for (const CoefficientSet& set : coefficient_sets()) {
    const bool short_numbers = std::string(GetParam().precision) != "fp32";
    if (!set.hazard.empty() || (set.name == "cans" && short_numbers)) continue;
    const MuonFacts facts = facts_of(
        "cuda", GetParam().form, GetParam().precision, std::string(set.name));
    for (const auto& [m, n] : kSmallStressShapes) {
      const std::vector<StressCase> cases = small_stress_cases(m, n, 1);
      std::vector<float> all;
      for (const StressCase& hard : cases)
        all.insert(all.end(), hard.matrix.values.begin(),
                   hard.matrix.values.end());
      const auto out = on_gpu(*engine_, facts, all, m, n,
                              static_cast<int64_t>(cases.size()));
      auto begin = out.begin();
      for (const StressCase& hard : cases) {
        const PlainMatrix exact =
            plain_iteration(hard.matrix, facts.coefficients(), set.norm_factor);
        const std::vector<float> got(begin, begin + m * n);
        begin += m * n;
        EXPECT_LE(
            relative_error(got, exact.values),
            stress_tolerance(facts.coefficients(), facts.precision({m, n})))
            << set.name << " " << m << "x" << n << ": " << hard.name;
      }
    }
  }
}

TEST_P(NewtonSchulzOnGpu, HandsOnWhatIsNotANumber) {
  const MuonFacts facts =
      facts_of("cuda", GetParam().form, GetParam().precision);
  for (const float bad : {NAN, INFINITY, -INFINITY})
    for (const auto& [m, n] : {std::pair{4, 6}, {6, 4}, {70, 80}}) {
      std::vector<float> in = noise(2 * m * n, 1);
      in[2] = bad;
      const std::vector<float> out = on_gpu(*engine_, facts, in, m, n, 2);
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_EQ(std::isnan(out[i]), i < out.size() / 2)
            << bad << " " << m << "x" << n << " at " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(Forms, NewtonSchulzOnGpu,
                         testing::Values(Variant{"standard", "fp32", 2e-5},
                                         Variant{"symmetric", "fp32", 2e-5},
                                         Variant{"gram", "fp32", 5e-5},
                                         Variant{"standard", "bf16", 3e-2},
                                         Variant{"symmetric", "bf16", 3e-2},
                                         Variant{"gram", "bf16", 4e-2},
                                         Variant{"standard", "fp16", 4e-3},
                                         Variant{"symmetric", "fp16", 4e-3},
                                         Variant{"gram", "fp16", 1e-2}),
                         [](const auto& test) {
                           return std::string(test.param.form) + "_" +
                                  test.param.precision;
                         });

}  // namespace
}  // namespace canzona::rules::newton_schulz_cuda_test

// Muon with strips on a GPU: against plain loops, and teams against a single
// rank.
#include <gtest/gtest.h>

#include "canzona/rules/muon/facts.h"
#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/muon/test_strips.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/test_device.h"
#include "canzona/rules/test_team.h"

namespace canzona::rules::muon_strips_cuda_test {
namespace {

constexpr const char* kForms[] = {"standard", "symmetric", "gram"};

RuleOptions on_cuda(const char* form, const char* precision,
                    const std::string& strips) {
  return {{"device", "cuda"},
          {"newton_schulz", form},
          {"precision", precision},
          {"strips", strips},
          {"unsafe", "on"}};
}

template <class Real>
std::vector<Real> on_gpu(Engine& engine, const RuleOptions& options,
                         MatrixShape shape, const std::vector<Real>& in,
                         int64_t count = 1, bool repeated = false) {
  EngineMemory device(engine);
  const Run from = device.put(in);
  const Run to = device.put(std::vector<Real>(in.size(), Real{-7}));
  const MuonFacts facts(options);
  const auto work = [&] {
    orthogonalize(engine, facts,
                  as_matrices(ConstRun(from), shape.rows, shape.cols, count),
                  as_matrices(to, shape.rows, shape.cols, count));
  };
  if (repeated)
    for (int i = 0; i < 3; ++i) engine.repeat(work);
  else
    work();
  return device.get<Real>(to.data, std::ssize(in));
}

const MatrixShape kShapes[] = {{40, 512}, {24, 600},  {65, 777},
                               {1, 530},  {130, 200}, {3, 1001}};

template <class Real>
void expect_as_plain(const char* precision, double tolerance) {
  const auto engine = make_cuda_engine();
  for (const MatrixShape shape : kShapes)
    for (int strips : {1, 2, 4, 8}) {
      const int64_t m = shape.rows, n = shape.cols;
      const std::string cut = std::to_string(strips);
      const MuonFacts facts(on_cuda("gram", precision, cut));
      const auto in = random_numbers<Real>(m * n, 5);
      const auto want = plain_steps(in, m, n, facts.strips(shape).strips,
                                    facts.coefficients());
      for (const char* form : kForms) {
        const RuleOptions options = on_cuda(form, precision, cut);
        EXPECT_LT(relative_distance(on_gpu(*engine, options, shape, in), want),
                  tolerance)
            << precision << " " << form << " " << to_string(shape) << " "
            << cut;
        const auto tall = on_gpu(*engine, options, {n, m}, turned(in, m, n));
        EXPECT_LT(relative_distance(turned(tall, n, m), want), tolerance)
            << precision << " " << form << " " << to_string(shape) << " " << cut
            << ", tall";
      }
    }
}

TEST(MuonStripsOnGpu, GiveWhatPlainLoopsGive) {
  CANZONA_NEEDS_GPU();
  expect_as_plain<double>("fp64", 1e-12);
  expect_as_plain<float>("fp32", 1e-4);
  expect_as_plain<float>("bf16", 6e-2);
  expect_as_plain<float>("fp16", 1.5e-2);
}

TEST(MuonStripsOnGpu, BitsDependNeitherOnBatchNorOnReplay) {
  CANZONA_NEEDS_GPU();
  const auto engine = make_cuda_engine();
  constexpr int64_t kCount = 5;
  for (const char* precision : {"fp32", "bf16", "fp16"})
    for (const char* form : kForms)
      for (const MatrixShape shape :
           {MatrixShape{96, 520}, MatrixShape{777, 65}}) {
        const int64_t each = shape.rows * shape.cols;
        const auto in = random_numbers<float>(kCount * each, 3);
        const RuleOptions options = on_cuda(form, precision, "4");
        const auto all = on_gpu(*engine, options, shape, in, kCount);
        expect_same_bits(on_gpu(*engine, options, shape, in, kCount, true), all,
                         "replayed");
        for (int64_t i = 0; i < kCount; ++i) {
          const auto at = i * each;
          const std::vector<float> one(in.begin() + at, in.begin() + at + each);
          expect_same_bits(on_gpu(*engine, options, shape, one),
                           {all.begin() + at, all.begin() + at + each},
                           std::string(precision) + " " + form + " alone");
        }
      }
}

// A matrix that is not cut has the same bits as with one strip.
TEST(MuonStripsOnGpu, AutoIsOneStripWhereNothingIsCut) {
  CANZONA_NEEDS_GPU();
  const auto engine = make_cuda_engine();
  const MatrixShape shape{96, 700};
  const auto in = random_numbers<float>(96 * 700, 8);
  for (const char* precision : {"fp32", "bf16", "fp16"}) {
    const auto one =
        on_gpu(*engine, on_cuda("gram", precision, "1"), shape, in);
    expect_same_bits(
        on_gpu(*engine, on_cuda("gram", precision, "auto"), shape, in), one,
        precision);
    EXPECT_NE(on_gpu(*engine, on_cuda("gram", precision, "4"), shape, in), one);
  }
}

TEST(MuonStripsOnGpu, LeaveZerosAsTheyAreAndHandOnWhatIsNotANumber) {
  CANZONA_NEEDS_GPU();
  const auto engine = make_cuda_engine();
  const MatrixShape shape{20, 512};
  for (const char* precision : {"fp32", "bf16", "fp16"})
    for (const std::string strips : {"2", "8"}) {
      const RuleOptions options = on_cuda("gram", precision, strips);
      const std::vector<float> zeros(20 * 512);
      EXPECT_EQ(on_gpu(*engine, options, shape, zeros), zeros);
      // Only one strip is nonzero.
      std::vector<float> one = zeros;
      for (int64_t i = 0; i < 20; ++i) one[size_t(i * 512 + 511)] = 1;
      const auto out = on_gpu(*engine, options, shape, one);
      for (int64_t i = 0; i < 20; ++i) {
        EXPECT_EQ(out[size_t(i * 512)], 0);
        EXPECT_NE(out[size_t(i * 512 + 511)], 0);
      }
      auto bad = random_numbers<float>(20 * 512, 2);
      bad[300] = NAN;
      for (float value : on_gpu(*engine, options, shape, bad))
        ASSERT_TRUE(std::isnan(value));
    }
}

// Squares overflow fp64; each strip has its own power of two.
TEST(MuonStripsOnGpu, TakeNumbersOfEverySizeInFp64) {
  CANZONA_NEEDS_GPU();
  const auto engine = make_cuda_engine();
  const MatrixShape shape{20, 512};
  const auto in = random_numbers<double>(20 * 512, 4);
  RuleOptions options = on_cuda("gram", "fp64", "4");
  options["epsilon"] = "0";  // or small norms would not be divided by
  const auto want = on_gpu(*engine, options, shape, in);
  for (double size : {1e-290, 1e-160, 1e160, 1e290}) {
    std::vector<double> scaled = in;
    for (double& x : scaled) x *= size;
    EXPECT_LT(relative_distance(on_gpu(*engine, options, shape, scaled), want),
              1e-12)
        << size;
  }
}

// ---- teams, each member with its own engine ----

template <class Real>
void expect_teams_as_one(const char* precision) {
  const auto engine = make_cuda_engine();
  for (const MatrixShape shape :
       {MatrixShape{40, 512}, MatrixShape{777, 65}, MatrixShape{300, 2100},
        MatrixShape{24, 520}, MatrixShape{531, 12}})
    for (int strips : {2, 8})
      for (const char* form : kForms) {
        const RuleOptions options =
            on_cuda(form, precision, std::to_string(strips));
        const auto rule = make_rule("muon", options, kTypeOf<Real>, "cuda");
        const auto first = random_numbers<Real>(shape.rows * shape.cols, 5);
        const auto second = random_numbers<Real>(shape.rows * shape.cols, 6);
        for (int members = 1; members <= strips; members *= 2) {
          TestTeam<Real> team(*rule, shape, members, members / 2,
                              [] { return make_cuda_engine(); });
          for (const auto& in : {first, second})
            expect_same_bits(
                team.transform(in), on_gpu(*engine, options, shape, in),
                std::string(precision) + " " + form + " " + to_string(shape) +
                    " strips " + std::to_string(strips) + " members " +
                    std::to_string(members));
        }
      }
}

TEST(MuonTeamsOnGpu, HaveTheBitsOfOneRankInFp16) {
  CANZONA_NEEDS_GPU();
  expect_teams_as_one<float>("fp16");
}
TEST(MuonTeamsOnGpu, HaveTheBitsOfOneRankInBf16) {
  CANZONA_NEEDS_GPU();
  expect_teams_as_one<float>("bf16");
}
TEST(MuonTeamsOnGpu, HaveTheBitsOfOneRankInFp32) {
  CANZONA_NEEDS_GPU();
  expect_teams_as_one<float>("fp32");
}
TEST(MuonTeamsOnGpu, HaveTheBitsOfOneRankInFp64) {
  CANZONA_NEEDS_GPU();
  expect_teams_as_one<double>("fp64");
}

}  // namespace
}  // namespace canzona::rules::muon_strips_cuda_test

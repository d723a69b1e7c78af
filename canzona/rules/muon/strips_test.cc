// Muon with strips: against an iteration written out here, and teams against a
// single rank.
#include <gmock/gmock.h>

#include <cmath>

#include "canzona/rules/muon/facts.h"
#include "canzona/rules/muon/test_strips.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/strips.h"
#include "canzona/rules/test_team.h"

namespace canzona::rules::muon_strips_test {
namespace {

constexpr const char* kForms[] = {"standard", "symmetric", "gram"};

RuleOptions on_cpu(const char* form, const char* precision, int strips,
                   const char* norm = "frobenius") {
  return {{"device", "cpu"},
          {"newton_schulz", form},
          {"precision", precision},
          {"normalization", norm},
          {"strips", std::to_string(strips)},
          {"unsafe", "on"}};
}

template <class Real>
std::vector<Real> transformed(Engine& engine, const Rule& rule,
                              MatrixShape shape, const std::vector<Real>& in) {
  std::vector<Real> out(in.size(), Real{-7});
  const Dims dims{shape.rows, shape.cols};
  const ConstRun fields[] = {run_of(in.data())};
  rule.transform(engine, {},
                 {.dims = dims, .fields = fields, .out = run_of(out.data())});
  return out;
}

// ---- one rank, against plain loops ----

const MatrixShape kShapes[] = {{40, 512}, {24, 600}, {65, 777},
                               {1, 530},  {3, 1000}, {130, 200}};

template <class Real>
void expect_as_plain(const char* precision, double tolerance) {
  const auto engine = make_cpu_engine();
  for (const MatrixShape shape : kShapes)
    for (int strips : {1, 2, 4, 8}) {
      const int64_t m = shape.rows, n = shape.cols;
      const MuonFacts facts(on_cpu("gram", precision, strips));
      const auto in = random_numbers<Real>(m * n, 5);
      const auto want = plain_steps(in, m, n, facts.strips(shape).strips,
                                    facts.coefficients());
      for (const char* form : kForms) {
        const auto rule =
            make_rule("muon", on_cpu(form, precision, strips), kTypeOf<Real>);
        const auto wide = transformed(*engine, *rule, shape, in);
        EXPECT_LT(relative_distance(wide, want), tolerance)
            << precision << " " << form << " " << to_string(shape) << " "
            << strips;
        const auto tall = transformed(*engine, *rule, {n, m}, turned(in, m, n));
        EXPECT_LT(relative_distance(turned(tall, n, m), want), tolerance)
            << precision << " " << form << " " << to_string(shape) << " "
            << strips << ", tall";
      }
    }
}

// Random matrices make R well-conditioned, so only rounding errors remain.
TEST(MuonStrips, GiveWhatPlainLoopsGive) {
  expect_as_plain<double>("fp64", 1e-12);
  expect_as_plain<float>("fp32", 1e-4);
  expect_as_plain<float>("bf16", 6e-2);
}

TEST(MuonStrips, LeaveZerosAsTheyAre) {
  const auto engine = make_cpu_engine();
  for (const char* precision : {"fp32", "bf16"})
    for (int strips : {1, 2, 4, 8})
      for (const char* form : kForms) {
        const auto rule =
            make_rule("muon", on_cpu(form, precision, strips), DType::kFp32);
        const std::vector<float> zeros(20 * 512);
        EXPECT_EQ(transformed(*engine, *rule, {20, 512}, zeros), zeros);
        // Only one strip is nonzero.
        std::vector<float> one(20 * 512);
        for (int64_t i = 0; i < 20; ++i) one[size_t(i * 512 + 511)] = 1;
        const auto out = transformed(*engine, *rule, {20, 512}, one);
        for (int64_t i = 0; i < 20; ++i) {
          EXPECT_EQ(out[size_t(i * 512)], 0);
          EXPECT_NE(out[size_t(i * 512 + 511)], 0);
        }
      }
}

// ---- teams, against one rank ----

template <class Real>
void expect_teams_as_one(const char* precision, Bf16Kernel kernel) {
  const auto engine = make_cpu_engine(kernel);
  for (const MatrixShape shape : {MatrixShape{40, 512}, MatrixShape{600, 24},
                                  MatrixShape{65, 777}, MatrixShape{1, 530}})
    for (const char* norm : {"frobenius", "schatten4"})
      for (int strips : {2, 4, 8})
        for (const char* form : kForms) {
          const auto rule = make_rule(
              "muon", on_cpu(form, precision, strips, norm), kTypeOf<Real>);
          const StripFacts facts = rule->facts().strips(shape);
          ASSERT_EQ(facts.strips, strips);
          const auto first = random_numbers<Real>(shape.rows * shape.cols, 5);
          const auto second = random_numbers<Real>(shape.rows * shape.cols, 6);
          for (int members = 1; members <= strips; members *= 2) {
            const std::string what = std::string(precision) + " " + form + " " +
                                     norm + " " + to_string(shape) +
                                     " strips " + std::to_string(strips) +
                                     " members " + std::to_string(members);
            TestTeam<Real> team(*rule, shape, members, members / 2,
                                [&] { return make_cpu_engine(kernel); });
            EXPECT_EQ(team.member(0).segments(), facts.segments);
            EXPECT_EQ(team.member(0).sum_elements(), facts.sum_elements);
            EXPECT_EQ(team.member(0).factor_bytes(), facts.factor_bytes);
            // Twice, because a transform can be reused.
            for (const auto& in : {first, second}) {
              expect_same_bits(team.transform(in),
                               transformed(*engine, *rule, shape, in), what);
              EXPECT_EQ(team.rounds_of_norms(), 1);
            }
          }
        }
}

TEST(MuonTeams, HaveTheBitsOfOneRankInBf16) {
  for (Bf16Kernel kernel : usable_bf16_kernels())
    expect_teams_as_one<float>("bf16", kernel);
}

TEST(MuonTeams, HaveTheBitsOfOneRankInFp32) {
  expect_teams_as_one<float>("fp32", Bf16Kernel::kPortable);
}

TEST(MuonTeams, HaveTheBitsOfOneRankInFp64) {
  expect_teams_as_one<double>("fp64", Bf16Kernel::kPortable);
}

// All members scale very large and very small numbers to about 1.
TEST(MuonTeams, AgreeOnNumbersOfEverySize) {
  const auto engine = make_cpu_engine();
  const MatrixShape shape{20, 512};
  const auto check = [&](auto real, const char* precision, double size,
                         int rounds) {
    using Real = decltype(real);
    const auto rule =
        make_rule("muon", on_cpu("gram", precision, 8), kTypeOf<Real>);
    auto in = random_numbers<Real>(20 * 512, 3);
    for (Real& v : in) v = static_cast<Real>(v * size);
    TestTeam<Real> team(*rule, shape, 4, 1, [] { return make_cpu_engine(); });
    expect_same_bits(team.transform(in), transformed(*engine, *rule, shape, in),
                     precision);
    EXPECT_EQ(team.rounds_of_norms(), rounds) << precision << " " << size;
  };
  for (const char* precision : {"fp32", "bf16"})
    for (double size : {0.0, 1e-36, 1e-3, 1.0, 1e30})
      check(float{}, precision, size, size == 1e-36 || size == 1e30 ? 2 : 1);
  for (double size : {0.0, 1e-290, 1e-160, 1.0, 1e160, 1e290})
    check(double{}, "fp64", size, size == 0 || size == 1 ? 1 : 2);
}

TEST(MuonTeams, NoneWithOneStripAndNoneOfARuleThatSaysNothing) {
  const auto engine = make_cpu_engine();
  Arena arena;
  const Arena::Scope scope(arena);
  const auto muon = make_rule("muon", on_cpu("gram", "bf16", 1), DType::kFp32);
  EXPECT_EQ(muon->share(*engine, arena, {40, 512}, {2, 0, true}), nullptr);
  const auto short_side =
      make_rule("muon", on_cpu("gram", "bf16", 8), DType::kFp32);
  EXPECT_EQ(short_side->share(*engine, arena, {40, 127}, {2, 0, true}),
            nullptr);
  const auto nsgd = make_rule("nsgd", {}, DType::kFp32);
  EXPECT_EQ(nsgd->share(*engine, arena, {40, 512}, {2, 0, true}), nullptr);
  EXPECT_EQ(nsgd->facts().strips({40, 512}), StripFacts{});
}

}  // namespace
}  // namespace canzona::rules::muon_strips_test

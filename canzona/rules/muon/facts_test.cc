#include "canzona/rules/muon/facts.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "canzona/base/error.h"

namespace canzona {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

int64_t flops(const RuleOptions& options, MatrixShape shape) {
  return MuonFacts(options).work(shape).every_step.value();
}

RuleOptions form(const char* name) { return {{"newton_schulz", name}}; }

TEST(MuonFacts, CountsTheGateOfQwen3_32b) {
  const MatrixShape gate{25600, 5120};
  EXPECT_EQ(flops(form("standard"), gate), 14'763'950'080'000);
  EXPECT_EQ(flops(form("symmetric"), gate), 10'737'418'240'000);
  EXPECT_EQ(flops(form("gram"), gate), 5'905'580'032'000);
  EXPECT_EQ(flops({}, gate), 5'905'580'032'000);
  EXPECT_EQ(MuonFacts({}).algorithm(gate), "gram");
}

// 761 and 348 us, 36 and 17 us at 790 TFLOP/s.
TEST(MuonFacts, CountsSmallerMatrices) {
  EXPECT_EQ(flops(form("standard"), {2048, 6144}), 601'295'421'440);
  EXPECT_EQ(flops(form("gram"), {2048, 6144}), 274'877'906'944);
  EXPECT_EQ(flops(form("standard"), {768, 2048}), 28'689'039'360);
  EXPECT_EQ(flops(form("gram"), {768, 2048}), 13'589'544'960);
}

TEST(MuonFacts, CountsRestarts) {
  const auto with = [](const char* restarts) {
    return RuleOptions{{"newton_schulz", "gram"}, {"restarts", restarts}};
  };
  EXPECT_EQ(flops(with("0"), {1000, 3000}), 26'000'000'000);
  EXPECT_EQ(flops(with("1"), {1000, 3000}), 32'000'000'000);
  EXPECT_EQ(flops(with("2"), {1000, 3000}), 38'000'000'000);
}

TEST(MuonFacts, SquareMatricesCostTwentyCubesInEveryTriangularForm) {
  EXPECT_EQ(flops(form("symmetric"), {100, 100}), 20'000'000);
  for (const char* restarts : {"0", "1", "2", "3", "4"}) {
    EXPECT_EQ(
        flops({{"newton_schulz", "gram"}, {"restarts", restarts}}, {100, 100}),
        20'000'000);
  }
  EXPECT_EQ(flops(form("standard"), {100, 100}), 30'000'000);
  EXPECT_EQ(MuonFacts({}).algorithm({100, 100}), "symmetric");
}

// The whole matrices of Qwen3-32B: 1.545 PFLOP a step.
TEST(MuonFacts, AddsUpToTheWorkOfQwen3_32b) {
  const int64_t total =
      64 * flops({}, {8192, 5120}) + 64 * flops({}, {5120, 8192}) +
      128 * flops({}, {1024, 5120}) + 192 * flops({}, {25600, 5120});
  EXPECT_EQ(total, 1'545'363'592'839'168);
}

TEST(MuonFacts, AutoIsTheCheaperOfSymmetricAndOneRestart) {
  for (int64_t m : {0, 1, 2, 3, 7, 128, 1000}) {
    for (int64_t n = m; n < m + 300; n += 1 + n / 7) {
      const int64_t symmetric = 15 * m * m * n + 5 * m * m * m;
      const int64_t gram = 6 * m * m * n + 14 * m * m * m;
      EXPECT_EQ(flops({}, {m, n}), std::min(symmetric, gram));
      EXPECT_EQ(flops({}, {n, m}), std::min(symmetric, gram));
      EXPECT_EQ(MuonFacts({}).algorithm({m, n}),
                symmetric <= gram ? "symmetric" : "gram");
    }
  }
}

TEST(MuonFacts, AutoNeverCostsMoreThanAnyForm) {
  for (int steps = 1; steps <= 20; ++steps) {
    for (int restarts = 0; restarts < steps; ++restarts) {
      for (MatrixShape shape : {MatrixShape{5, 5}, MatrixShape{5, 6},
                                MatrixShape{40, 5}, MatrixShape{1, 9}}) {
        RuleOptions options{{"steps", std::to_string(steps)},
                            {"restarts", std::to_string(restarts)}};
        const int64_t automatic = flops(options, shape);
        int64_t fewest = automatic + 1;
        for (const char* name : {"standard", "symmetric", "gram"}) {
          options["newton_schulz"] = name;
          fewest = std::min(fewest, flops(options, shape));
        }
        EXPECT_EQ(automatic, fewest) << steps << " " << restarts;
      }
    }
  }
}

TEST(MuonFacts, TakesASecondRestartInBf16) {
  const RuleOptions bf16{{"precision", "bf16"}};
  EXPECT_EQ(MuonFacts(bf16).options().at("restarts"), "2");
  EXPECT_EQ(flops(bf16, {1000, 3000}), 38'000'000'000);
  EXPECT_EQ(MuonFacts(RuleOptions{{"precision", "fp32"}}).restarts(), 1);
  EXPECT_EQ(MuonFacts(RuleOptions{{"precision", "bf16"}, {"restarts", "1"}})
                .restarts(),
            1);
}

TEST(MuonFacts, HasFewerRestartsThanSteps) {
  EXPECT_EQ(MuonFacts(RuleOptions{{"steps", "1"}}).restarts(), 0);
  EXPECT_EQ(
      MuonFacts(RuleOptions{{"steps", "2"}, {"precision", "bf16"}}).restarts(),
      1);
  EXPECT_THAT(
      [] {
        MuonFacts(RuleOptions{{"restarts", "5"}});
      },
      ThrowsMessage<UsageError>(HasSubstr("steps-1=4")));
}

TEST(MuonFacts, OptionsInForceAreAllNamed) {
  EXPECT_EQ(MuonFacts({}).options(), (RuleOptions{{"newton_schulz", "auto"},
                                                  {"precision", "fp16"},
                                                  {"restarts", "1"},
                                                  {"steps", "5"}}));
}

TEST(MuonFacts, KeepsTheMomentumWithTheShard) {
  const auto states = MuonFacts({}).states({5120, 25600});
  ASSERT_EQ(states.size(), 1U);
  EXPECT_EQ(states[0].name, "momentum");
  EXPECT_EQ(states[0].lives, Lives::kWithShard);
  EXPECT_EQ(states[0].bytes(), Bytes(524'288'000));
}

TEST(MuonFacts, NeverRefreshesAndNeedsWholeMatrices) {
  const MuonFacts muon({});
  EXPECT_EQ(muon.period(), 1);
  EXPECT_EQ(muon.work({64, 64}).refresh, Flops(0));
  EXPECT_TRUE(muon.needs_whole_matrix());
  EXPECT_EQ(muon.gather_bytes_per_element(), 4);
  EXPECT_EQ(muon.scatter_bytes_per_element(), 4);
}

// Where only the form that runs fits 64 bits, it is counted.
TEST(MuonFacts, CountsOnlyTheFormThatRuns) {
  const int64_t m = 1'000'000;
  const int64_t n = 1'200'000;
  EXPECT_THROW(flops(form("symmetric"), {m, n}), UsageError);
  EXPECT_THROW(flops({}, {m, n}), UsageError);
  EXPECT_THROW(flops(form("symmetric"), {400'000, 4'000'000}), UsageError);
  EXPECT_EQ(flops({}, {400'000, 4'000'000}), 4'736'000'000'000'000'000);
}

}  // namespace
}  // namespace canzona

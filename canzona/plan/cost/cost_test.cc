#include "canzona/plan/cost/cost.h"

#include <gmock/gmock.h>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::plan::cost_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

CostTable table_of(const std::string& measurements,
                   const std::string& members = "") {
  return CostTable::parse(
      cat("{", members, R"("format": "canzona.cost_table", "version": 1,
              "device": "Toy 1", "kind": "cpu", "precision": "fp32",
              "date": "2025-03-31", "measurements": [)",
          measurements, "]}"),
      "toy.json");
}

// 10x20 is 6·10²·20 + 14·10³ = 26,000 flops, 10x40 is 38,000.
const char* const kGram = R"(
    {"rule": "muon", "algorithm": "gram", "entries": [
      {"rows": 10, "cols": 20, "seconds": 26e-6},
      {"rows": 10, "cols": 40, "seconds": 114e-6}]})";

// Without a table a tick is one flop, and times are nominal.
TEST(CostModel, CountsTheFlopsOfTheFormula) {
  const auto muon = make_rule_facts("muon", {});
  const CostModel cost(*muon, nullptr);
  EXPECT_EQ(cost.cost({10, 20}), (MatrixCost{Ticks(26'000), Ticks(0)}));
  EXPECT_EQ(cost.cost({20, 10}), cost.cost({10, 20}));
  EXPECT_EQ(cost.cost({10, 10}), (MatrixCost{Ticks(20'000), Ticks(0)}));
  EXPECT_EQ(cost.basis().source, "nominal");
  EXPECT_DOUBLE_EQ(cost.basis().seconds_per_tick, 1 / 400e12);
}

// 3x3 with two factors: 2·5·27 flops on every step, 2·(14/3 + 4)·27 on a
// refresh, which moves the first moment into the new basis.
TEST(CostModel, CountsRefreshesApart) {
  const auto soap = make_rule_facts("soap", {{"refresh", "qr"}});
  EXPECT_EQ(CostModel(*soap, nullptr).cost({3, 3}),
            (MatrixCost{Ticks(270), Ticks(468)}));
}

TEST(CostModel, AMatrixWithoutElementsCostsNothing) {
  const auto muon = make_rule_facts("muon", {});
  EXPECT_EQ(CostModel(*muon, nullptr).cost({0, 7}), MatrixCost{});
}

// With a table a tick is one picosecond of what was measured.
TEST(CostModel, TakesTheTableInstead) {
  const auto muon = make_rule_facts("muon", {});
  const CostTable table = table_of(kGram);
  const CostModel cost(*muon, &table);
  EXPECT_EQ(cost.basis().source, "Toy 1");
  EXPECT_DOUBLE_EQ(cost.basis().seconds_per_tick, 1e-12);
  EXPECT_EQ(cost.cost({10, 20}).every_step, Ticks(26'000'000));
  EXPECT_EQ(cost.cost({10, 40}).every_step, Ticks(114'000'000));
  EXPECT_EQ(cost.cost({10, 20}).refresh, Ticks(0));
}

// 140 µs for 64,000 flops is 2.1875 ns each. A square matrix runs another
// algorithm, of which nothing was measured: 20,000 flops.
TEST(CostModel, FallsBackToTheMeanRate) {
  const auto muon = make_rule_facts("muon", {});
  const CostTable table = table_of(kGram);
  EXPECT_EQ(CostModel(*muon, &table).cost({10, 10}).every_step,
            Ticks(43'750'000));
}

// Refreshes were not measured at all: 468,000 flops at the nominal rate.
TEST(CostModel, FallsBackToTheNominalRate) {
  const auto soap = make_rule_facts("soap", {{"refresh", "qr"}});
  const CostTable table = table_of(kGram);
  const MatrixCost cost = CostModel(*soap, &table).cost({30, 30});
  EXPECT_EQ(cost.every_step, Ticks(590'625'000));
  EXPECT_EQ(cost.refresh, Ticks(1170));
}

TEST(CostModel, MeasuredRefreshes) {
  const auto soap = make_rule_facts("soap", {{"refresh", "qr"}});
  const CostTable table = table_of(R"(
      {"rule": "soap", "options": {"refresh": "qr"}, "algorithm": "qr",
       "entries": [
        {"rows": 3, "cols": 3, "seconds": 2e-9, "refresh_seconds": 5e-9}]})");
  EXPECT_EQ(CostModel(*soap, &table).cost({3, 3}),
            (MatrixCost{Ticks(2000), Ticks(5000)}));
}

TEST(CostModel, RefusesTimesBeyondAnyClock) {
  const auto muon = make_rule_facts("muon", {});
  const CostTable table = table_of(R"(
      {"rule": "muon", "algorithm": "gram", "entries": [
        {"rows": 10, "cols": 20, "seconds": 9e5}]})");
  const CostModel cost(*muon, &table);
  EXPECT_EQ(cost.cost({10, 20}).every_step.value(), 900'000'000'000'000'000);
  EXPECT_THAT(
      [&] {
        cost.cost({10, 70});
      },
      ThrowsMessage<UsageError>(
          AllOf(HasSubstr("cost table"), HasSubstr("10×70"))));
}

TEST(CostModel, WeighsWhatIsAskedFor) {
  const auto muon = make_rule_facts("muon", {});
  const CostTable table = table_of(kGram);
  const CostModel cost(*muon, &table);
  const MatrixShape shape{10, 20};
  EXPECT_EQ(cost.weight(Weight::kCost, shape, 1), cost.cost(shape));
  EXPECT_EQ(cost.weight(Weight::kFlops, shape, 1).every_step, Ticks(26'000));
  EXPECT_EQ(cost.weight(Weight::kNumel, shape, 1).every_step, Ticks(200));
}

// A tensor that tp does not cut is as heavy as tp shards. Only elements know
// of copies; a refresh moves none.
TEST(CostModel, CountsCopiesOfUncutTensors) {
  const auto soap = make_rule_facts("soap", {{"refresh", "qr"}});
  const CostModel cost(*soap, nullptr);
  EXPECT_EQ(cost.weight(Weight::kNumel, {3, 3}, 8),
            (MatrixCost{Ticks(72), Ticks(0)}));
  EXPECT_EQ(cost.weight(Weight::kFlops, {3, 3}, 8),
            (MatrixCost{Ticks(270), Ticks(468)}));
  EXPECT_EQ(cost.weight(Weight::kCost, {3, 3}, 8), cost.cost({3, 3}));
  EXPECT_THROW(cost.weight(Weight::kNumel, {int64_t{1} << 40, 1 << 20}, 8),
               UsageError);
}

TEST(CostModel, KnowsTheRateOfPassesOverMemory) {
  const auto muon = make_rule_facts("muon", {});
  const auto rate = [&](const CostTable* table) {
    return CostModel(*muon, table).basis().element_wise_bytes_per_second;
  };
  EXPECT_EQ(rate(nullptr), 0);
  const CostTable none = table_of(kGram);
  EXPECT_EQ(rate(&none), 0);
  const CostTable table =
      table_of(kGram, R"("element_wise_bytes_per_second": 4e9, )");
  EXPECT_EQ(rate(&table), 4e9);
}

// By hand: 8 x 1024 with one factor in four strips of 256; a tick is a flop. A
// strip has 5·8²·256 flops, of a refresh 2·8²·256 + 2·8³; the head 14/3·8³.
TEST(TeamCosts, CountRefreshesOfStrips) {
  const auto soap = make_rule_facts(
      "soap",
      {{"device", "cpu"}, {"strips", "4"}, {"max_preconditioner_dim", "512"}});
  const CostModel model(*soap, nullptr);
  Links links;
  links.intra_bytes_per_second = 1e18;
  links.latency_seconds = 0;
  TeamCosts costs(*soap, model.basis(), links);
  const MatrixShape shape{8, 1024};
  const MatrixCost cost = model.cost(shape);
  constexpr int64_t kStrip = 5 * 64 * 256, kMoved = 2 * 64 * 256 + 2 * 512,
                    kBasis = 2389;  // 14/3·512, rounded
  EXPECT_EQ(cost, (MatrixCost{Ticks(4 * kStrip), Ticks(4 * kMoved + kBasis)}));
  const TeamSize two = costs.team(shape, cost, 2);
  EXPECT_EQ(two.member, 2 * kStrip);
  EXPECT_EQ(two.head, 0);
  const TeamSize more = costs.refresh(shape, cost, 2);
  EXPECT_EQ(more.member, 2 * kMoved);
  EXPECT_EQ(more.head, kBasis);
  const TeamSizes sizes = costs.sizes(shape, cost, 8);
  ASSERT_EQ(sizes.size(), 3u);
  EXPECT_EQ(sizes[0], whole_matrix(40 * kStrip + 4 * kMoved + kBasis));
  EXPECT_EQ(sizes[1].member, 20 * kStrip + 2 * kMoved);
  EXPECT_EQ(sizes[1].head, kBasis);
  EXPECT_EQ(sizes[2].member, 10 * kStrip + kMoved);
  // Factors are in transit in refreshes alone.
  const StripFacts& facts = costs.strips(shape);
  EXPECT_EQ(team_bytes(facts, 2, 0).factors_sent, 16 + 8 * 8 + 4 * 64);
  EXPECT_EQ(ordinary_team_bytes(facts, 2, 0).factors_sent, 0);
  EXPECT_EQ(ordinary_team_bytes(facts, 2, 1).factors_received, 0);
  EXPECT_EQ(ordinary_team_bytes(facts, 2, 0).sums_received,
            team_bytes(facts, 2, 0).sums_received);
}

}  // namespace
}  // namespace canzona::plan::cost_test

#include "canzona/measure/zero_bench.h"

#include <gtest/gtest.h>

#include "canzona/base/error.h"
#include "canzona/measure/test_bench.h"

namespace canzona::zero_bench_test {
namespace {

class ZeroBenchTest : public testing::Test {
 protected:
  void expect_as_planned(const ZeroBench& bench) {
    for (const ZeroCell& cell : bench.cells) {
      SCOPED_TRACE(to_string(cell.sizes));
      ASSERT_EQ(cell.error, "");
      const IterationTrial& trial = cell.first();
      for (size_t r = 0; r < cell.bytes.ranks.size(); ++r) {
        EXPECT_EQ(trial.bytes_sent[r], cell.bytes.ranks[r].sent());
        EXPECT_EQ(trial.slow_bytes_sent[r], cell.bytes.ranks[r].sent_inter);
      }
      EXPECT_EQ(std::ranges::max(trial.memory_bytes),
                cell.memory_predicted_max);
      EXPECT_GT(trial.iteration_seconds, 0);
      EXPECT_GT(cell.predicted.seconds, 0);
    }
  }

  TestTokens tokens_{3000};
  Batches batches_{tokens_, {.length = 12, .seed = 9}};
};

TEST_F(ZeroBenchTest, AllCellsDoAsPlannedAndLeadToOneResult) {
  for (const std::string rule : {"muon", "soap", "adamw"}) {
    SCOPED_TRACE(rule);
    const TestBenchWish wish{.mesh = "dp=4", .rule = rule};
    const ZeroBenchRequest request = test_bench(wish, batches_);
    const ZeroBench bench = run_zero_bench(request);
    EXPECT_EQ(bench.cells.size(), 3 * all_zero_sizes(4).size());
    expect_as_planned(bench);
    EXPECT_EQ(bench.disagreement(request.mesh, 1, GradientWire::kFp32), "");
    for (const ZeroCell& cell : bench.cells)
      EXPECT_EQ(cell.first().digest, bench.cells.front().first().digest);
  }
}

TEST_F(ZeroBenchTest, MicroBatchesAndTensorParallelRanksCount) {
  const TestBenchWish wish{.mesh = "dp=2,tp=2", .micro_batches = 3};
  ZeroBenchRequest request = test_bench(wish, batches_);
  request.overlaps = {Overlap::kBackground};
  request.repeats = 2;
  const ZeroBench bench = run_zero_bench(request);
  EXPECT_EQ(request.settings.micro_batches(request.mesh), 3);
  expect_as_planned(bench);
  EXPECT_EQ(bench.disagreement(request.mesh, 3, GradientWire::kFp32), "");
  EXPECT_EQ(bench.cells.front().trials.size(), 2U);
}

// Every order of bf16 sums has its own bits, and half of the bytes.
TEST_F(ZeroBenchTest, GradientsInBf16AreAsPlannedToo) {
  for (const char* mesh : {"dp=4", "dp=2,tp=2"}) {
    SCOPED_TRACE(mesh);
    ZeroBenchRequest request = test_bench({.mesh = mesh}, batches_);
    request.overlaps = {Overlap::kNone, Overlap::kBackground};
    request.settings.runtime.wire = GradientWire::kBf16;
    const ZeroBench bench = run_zero_bench(request);
    expect_as_planned(bench);
    EXPECT_EQ(bench.disagreement(request.mesh, 1, GradientWire::kBf16), "");
  }
}

TEST_F(ZeroBenchTest, ScalesLinksByWhatWasMeasuredFirst) {
  ZeroBenchRequest request = test_bench({.mesh = "dp=2"}, batches_);
  request.overlaps = {Overlap::kBackground};
  request.link = LinkModel{.intra_bytes_per_second = 10,
                           .inter_bytes_per_second = 1,
                           .ranks_per_node = 2};
  request.comm_ratio = 0.5;
  const ZeroBench bench = run_zero_bench(request);
  EXPECT_EQ(bench.measured_first, (ZeroSizes{2, 2, 2}));
  EXPECT_NEAR(bench.link->intra_bytes_per_second,
              10 * bench.link->inter_bytes_per_second,
              1e-6 * bench.link->intra_bytes_per_second);
  const ZeroCell& zero3 = bench.cells.back();
  ASSERT_EQ(zero3.sizes, bench.measured_first);
  EXPECT_NEAR(zero3.link_seconds, 0.5 * bench.compute_seconds,
              1e-6 * bench.compute_seconds);
  EXPECT_GT(zero3.edge_seconds, 0);
}

TEST_F(ZeroBenchTest, RefusesToScaleLinksThatNobodyUses) {
  ZeroBenchRequest request = test_bench({.mesh = "dp=1"}, batches_);
  request.comm_ratio = 0.5;
  EXPECT_THROW(run_zero_bench(request), UsageError);
}

TEST_F(ZeroBenchTest, ACellThatCannotBeSaysWhy) {
  ZeroBenchRequest request = test_bench({.mesh = "dp=2"}, batches_);
  request.overlaps = {Overlap::kBackground};
  request.sizes = {{2, 1, 1}, {2, 2, 2}};
  const auto plan = request.plan;
  request.plan = [plan](const ZeroSizes& sizes, const Link& link) {
    if (sizes.z2 == 1) throw UsageError("not so");
    return plan(sizes, link);
  };
  const ZeroBench bench = run_zero_bench(request);
  EXPECT_EQ(bench.cells.front().error, "not so");
  EXPECT_EQ(bench.cells.back().error, "");
  EXPECT_EQ(bench.disagreement(request.mesh, 1, GradientWire::kFp32), "");
}

ZeroCell cell_of(const ZeroSizes& sizes, const std::string& digest) {
  ZeroCell cell;
  cell.sizes = sizes;
  cell.trials.emplace_back();
  cell.trials.back().digest = digest;
  return cell;
}

TEST(ZeroBenchDigests, MustAgreeWhereSumsAreTheSame) {
  const Mesh four = parse_mesh("dp=4"), six = parse_mesh("dp=6");
  ZeroBench bench;
  bench.cells = {cell_of({4, 1, 1}, "a"), cell_of({4, 1, 4}, "a"),
                 cell_of({4, 2, 2}, "b")};
  EXPECT_NE(bench.disagreement(four, 1, GradientWire::kFp32), "");
  EXPECT_EQ(bench.disagreement(four, 2, GradientWire::kFp32), "");
  bench.cells[1].trials.back().digest = "c";
  EXPECT_NE(
      bench.disagreement(four, 2, GradientWire::kFp32).find("z1=4,z2=1,z3=4"),
      std::string::npos);
  // Pairs of six ranks are subtrees of the sum; groups of three are not.
  bench.cells = {cell_of({6, 1, 1}, "a"), cell_of({6, 3, 3}, "b")};
  EXPECT_EQ(bench.disagreement(six, 1, GradientWire::kFp32), "");
  bench.cells[1].sizes = {6, 2, 2};
  EXPECT_NE(bench.disagreement(six, 1, GradientWire::kFp32), "");
}

TEST(ZeroBenchTimes, AreMediansOfAllTimedIterations) {
  ZeroCell cell;
  for (const double seconds : {3.0, 1.0, 2.0}) {
    IterationTrial& trial = cell.trials.emplace_back();
    trial.seconds = {seconds, seconds + 6};
    trial.waited_seconds = seconds;
    trial.busy_seconds = 4 * seconds;
    trial.exposed_seconds = 0.5 * seconds;
  }
  EXPECT_EQ(cell.iteration_seconds(), 5);
  EXPECT_EQ(cell.iteration_spread(), 8);
  EXPECT_EQ(cell.median(&IterationTrial::waited_seconds), 2);
  EXPECT_EQ(cell.hidden_fraction(), 0.75);
  EXPECT_EQ(cell.covered_fraction(), 0.875);
  EXPECT_EQ(cell.step_hidden_fraction(), 1);
}

TEST_F(ZeroBenchTest, ALimitEndsAfterTheFirstRound) {
  ZeroBenchRequest request = test_bench({.mesh = "dp=2"}, batches_);
  request.sizes = {{2, 2, 2}};
  request.overlaps = {Overlap::kBackground};
  request.repeats = 1000;
  request.limit_seconds = 1e-9;
  EXPECT_EQ(run_zero_bench(request).cells.front().trials.size(), 1U);
}

}  // namespace
}  // namespace canzona::zero_bench_test

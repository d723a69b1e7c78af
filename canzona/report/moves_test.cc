#include "canzona/report/explain.h"

#include <gtest/gtest.h>

#include "canzona/report/test_plans.h"

namespace canzona::report::moves_test {
namespace {

TEST(Moves, PiecesCoverTheMatrixOnce) {
  for (const std::string& strategy : strategy_names()) {
    const Plan plan = shown_plan({.strategy = strategy}).plan;
    for (size_t m = 0; m < plan.matrices.size(); ++m) {
      int64_t elements = 0;
      for (const MovedPiece& piece :
           moves_of(plan, static_cast<int32_t>(m)).pieces)
        elements += piece.route.num_rows * piece.route.num_cols;
      EXPECT_EQ(elements, plan.matrices[m].rows * plan.matrices[m].cols);
    }
  }
}

// Two ways to count: piece by piece here, rank by rank in the prediction.
TEST(Moves, AddUpToThePredictedBytes) {
  for (const char* strategy :
       {"balanced", "start_offset", "contiguous", "megatron"}) {
    const ReportPlan shown = shown_plan({.strategy = strategy});
    int64_t gathered = 0, scattered = 0;
    for (size_t m = 0; m < shown.plan.matrices.size(); ++m) {
      const Moves moves = moves_of(shown.plan, static_cast<int32_t>(m));
      gathered += moves.gather.value();
      scattered += moves.scatter.value();
    }
    int64_t sent_gather = 0, sent_scatter = 0;
    for (const RankCost& rank : shown.ranks) {
      sent_gather += rank.wire[static_cast<size_t>(Collective::kGather)].sent();
      sent_scatter +=
          rank.wire[static_cast<size_t>(Collective::kScatter)].sent();
    }
    EXPECT_EQ(gathered, sent_gather) << strategy;
    EXPECT_EQ(scattered, sent_scatter) << strategy;
    EXPECT_GT(gathered, 0) << strategy;
  }
}

TEST(Moves, TheOwnersPieceStays) {
  const Plan plan = shown_plan().plan;
  const Moves moves = moves_of(plan, 0);
  ASSERT_EQ(moves.pieces.size(), 2U);
  for (const MovedPiece& piece : moves.pieces) {
    const bool owned = piece.route.t == plan.parts[0].owners[0].front();
    EXPECT_EQ(piece.gather.value() == 0, owned);
    EXPECT_EQ(piece.scatter.value() == 0, owned);
  }
}

TEST(Moves, WithoutTensorParallelismNothingMovesInTheStep) {
  const Plan plan = shown_plan({.mesh = "dp=4"}).plan;
  EXPECT_EQ(moves_of(plan, 0).gather, Bytes(0));
  EXPECT_NE(print_text(moves_view(plan, 0), Ink()).find("nothing: tp is 1"),
            std::string::npos);
}

}  // namespace
}  // namespace canzona::report::moves_test

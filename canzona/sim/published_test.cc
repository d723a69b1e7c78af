#include "canzona/sim/published.h"

#include <gmock/gmock.h>

#include <cmath>

#include "canzona/base/error.h"

namespace canzona::published_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// One paper of two cells on a small model.
std::string table_of(const std::string& cells,
                     const std::string& fitted = "\"card\"") {
  return R"({"format": "canzona.published", "version": 1, "papers": [
    {"name": "p", "source": "s", "ranks_per_node": 8, "card_tflops": 100,
     "exchange_bytes_per_second": 1e11, "node_bytes_per_second": 1e10,
     "latency_seconds": 1e-6, "fitted": [)" +
         fitted + R"(], "cells": [)" + cells + "]}]}";
}

std::string cell(const std::string& strategy, double value,
                 const std::string& more = "") {
  return R"({"name": ")" + strategy +
         R"(", "where": "there", "group": "g", "model": "qwen3-0.6b",
    "mesh": "dp=4,tp=2", "rule": "muon", "strategy": ")" +
         strategy + R"(", "quantity": "step_seconds", "value": )" +
         std::to_string(value) + more + "}";
}

PredictedPaper predicted(const std::string& json) {
  return predict_paper(read_published(json, "t.json").front());
}

TEST(Published, FitsTheMarkedCellsAlone) {
  const PredictedPaper paper =
      predicted(table_of(cell("balanced", 0.02, R"(, "fit": true)") + "," +
                         cell("replicated", 0.5)));
  ASSERT_EQ(paper.cells.size(), 2u);
  EXPECT_NEAR(paper.cells[0].error(), 0, 1e-6);
  EXPECT_LT(paper.rates.card_flops, 100e12);
  EXPECT_EQ(paper.rates.node_bytes_per_second, 1e10);
  EXPECT_GT(std::abs(paper.cells[1].error()), 1e-3);
  EXPECT_EQ(paper.worst_held_back(), std::abs(paper.cells[1].error()));
  ASSERT_EQ(paper.orders.size(), 1u);
  EXPECT_TRUE(paper.orders[0].right);
}

// A strategy that repeats everything is slower; a paper that says otherwise has
// the opposite order.
TEST(Published, ComparesTheOrderInGroups) {
  const PredictedPaper paper =
      predicted(table_of(cell("balanced", 0.02, R"(, "fit": true)") + "," +
                         cell("replicated", 0.001)));
  EXPECT_FALSE(paper.orders[0].right);
}

TEST(Published, RefusesTablesByName) {
  const auto refuses = [](const std::string& json, const char* says) {
    EXPECT_THAT(
        [&] { read_published(json, "t.json"); },
        ThrowsMessage<UsageError>(AllOf(HasSubstr("t.json"), HasSubstr(says))));
  };
  refuses("{}", "format");
  refuses(table_of(cell("balanced", 0)), "value is 0");
  refuses(table_of(cell("balanced", 1)), "1 numbers are fitted to 0 cells");
  refuses(table_of(cell("balanced", 1, R"(, "fit": true)"), "\"cards\""),
          "did you mean 'card'");
  refuses(
      table_of(cell("balanced", 1, R"(, "fit": true)"), "\"card\", \"card\""),
      "twice");
  refuses(table_of(cell("balanced", 1, R"(, "fits": true)")), "'fits'");
}

// The table embedded in the program has at most three fitted numbers per paper.
TEST(Published, TheTableIsSound) {
  const std::vector<PublishedPaper> papers = published_papers();
  ASSERT_EQ(papers.size(), 2u);
  for (const PublishedPaper& paper : papers) {
    EXPECT_LE(paper.fitted.size(), 3u);
    for (const PublishedCell& one : paper.cells) {
      EXPECT_FALSE(one.where.empty()) << one.name;
      EXPECT_GT(one.value, 0) << one.name;
    }
  }
}

const PredictedCell& cell_of(const PredictedPaper& paper, const char* name) {
  for (const PredictedCell& one : paper.cells)
    if (one.cell.name == name) return one;
  ADD_FAILURE() << name;
  return paper.cells.front();
}

// The steps in Canzona's paper follow from two rates to within a few per cent,
// and so does the layer-wise step on half the ranks.
TEST(Published, StepsOfCanzonaFollowFromTwoRates) {
  const PredictedPaper paper = predict_paper(published_papers().front());
  for (const PredictedCell& one : paper.cells) {
    if (!one.cell.fit) continue;
    EXPECT_NEAR(one.error(), 0, 0.05) << one.cell.name;
  }
  EXPECT_NEAR(cell_of(paper, "32B, 128 ranks, layer-wise: step").error(), 0,
              0.15);
  for (const PublishedOrder& order : paper.orders)
    EXPECT_TRUE(order.right) << order.group;
}

}  // namespace
}  // namespace canzona::published_test

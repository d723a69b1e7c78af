// Times published in papers, and our predictions for them.
//
//   for (const PredictedPaper& paper : predict_published(published_papers()))
//     for (const PredictedCell& cell : paper.cells) … cell.error() …
//
// At most three numbers are fitted for each paper, on the cells that are marked
// for it: the rates of its card, of the exchange inside a node, and of links
// between nodes. All other cells are held out. The table is
// tests/data/published.json, which is embedded in the program. All functions
// are pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/sim/workload.h"

namespace canzona {

enum class PublishedQuantity {
  kStep,             // seconds of the optimizer's step
  kForwardBackward,  // seconds of the iteration without it
  kIteration,        // seconds
  kUtilization,      // model flops relative to the card's peak
};
std::string_view to_string(PublishedQuantity quantity);

struct PublishedCell {
  std::string name;
  std::string where;        // in the paper
  std::string group;        // cells whose order is compared; empty: none
  std::string model;        // a preset, or one of the table's own
  std::string config = {};  // HF configuration of the latter
  bool fused = false;
  std::string mesh;
  std::string rule;
  RuleOptions rule_options = {};
  std::string strategy;
  std::string zero = {};
  std::string overlap = {};
  int64_t tokens = 4096, length = 4096, micro_batches = 1;
  PublishedQuantity quantity = PublishedQuantity::kStep;
  double value = 0;
  bool fit = false;
  std::string note = {};  // why a close prediction is not expected
};

// Fitted, or as stated in the paper.
struct PublishedRates {
  double card_flops = 0;                 // per second
  double exchange_bytes_per_second = 0;  // per rank, inside its node
  double node_bytes_per_second = 0;      // per rank, between nodes
};

struct PublishedPaper {
  std::string name;
  std::string source;
  int32_t ranks_per_node = 8;
  double peak_flops = 0;  // per second, for utilization; 0: not stated
  double latency_seconds = 0;
  bool rings = false;    // sums and gathers by a library's rings
  PublishedRates rates;  // before fitting
  std::vector<double PublishedRates::*> fitted;
  std::vector<PublishedCell> cells;
};

// UsageError names `where` and the position.
std::vector<PublishedPaper> read_published(std::string_view json,
                                           const std::string& where);
// The table embedded in the program.
std::string_view published_json();
std::vector<PublishedPaper> published_papers();

struct PredictedCell {
  PublishedCell cell;
  double predicted = 0;

  // 0.1 means that the prediction is a tenth too high.
  double error() const { return predicted / cell.value - 1; }
};

// Cells of a group, smallest value first.
struct PublishedOrder {
  std::string group;
  bool right = true;
};

struct PredictedPaper {
  PublishedPaper paper;
  PublishedRates rates;  // after fitting
  std::vector<PredictedCell> cells;
  std::vector<PublishedOrder> orders;

  // The largest |error| of the held-out cells.
  double worst_held_back() const;
};

PredictedPaper predict_paper(const PublishedPaper& paper);
std::vector<PredictedPaper> predict_published(
    const std::vector<PublishedPaper>& papers);

}  // namespace canzona

// Times that papers have published, and what is predicted for them.
//
//   for (const PredictedPaper& paper : predict_published(published_papers()))
//     for (const PredictedCell& cell : paper.cells) … cell.error() …
//
// Of each paper at most three numbers are fitted, on the cells that are marked
// so: the rate of its card, of the exchange inside a node, and of links between
// nodes. All other cells are held back. The table is tests/data/published.json,
// which the program holds. Pure; any thread.
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
  kUtilization,      // flops of the model of what its card could do
};
std::string_view to_string(PublishedQuantity quantity);

struct PublishedCell {
  std::string name;
  std::string where;        // in the paper
  std::string group;        // of cells whose order is compared; empty: none
  std::string model;        // a preset, or one of the table's own
  std::string config = {};  // of the latter, as HF has it
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
  std::string note = {};  // why it cannot be expected to be near
};

// Fitted, or as the paper says.
struct PublishedRates {
  double card_flops = 0;                 // per second
  double exchange_bytes_per_second = 0;  // of a rank inside its node
  double node_bytes_per_second = 0;      // of a rank to others
};

struct PublishedPaper {
  std::string name;
  std::string source;
  int32_t ranks_per_node = 8;
  double peak_flops = 0;  // per second, for utilization; 0: not said
  double latency_seconds = 0;
  bool rings = false;    // sums and gathers of a library
  PublishedRates rates;  // before anything is fitted
  std::vector<double PublishedRates::*> fitted;
  std::vector<PublishedCell> cells;
};

// UsageError names `where` and the place.
std::vector<PublishedPaper> read_published(std::string_view json,
                                           const std::string& where);
// The table that the program holds.
std::string_view published_json();
std::vector<PublishedPaper> published_papers();

struct PredictedCell {
  PublishedCell cell;
  double predicted = 0;

  // 0.1: predicted a tenth too much.
  double error() const { return predicted / cell.value - 1; }
};

// Cells of a group, the smallest value first.
struct PublishedOrder {
  std::string group;
  bool right = true;
};

struct PredictedPaper {
  PublishedPaper paper;
  PublishedRates rates;  // with what was fitted
  std::vector<PredictedCell> cells;
  std::vector<PublishedOrder> orders;

  // Largest |error| of the cells that were held back.
  double worst_held_back() const;
};

PredictedPaper predict_paper(const PublishedPaper& paper);
std::vector<PredictedPaper> predict_published(
    const std::vector<PublishedPaper>& papers);

}  // namespace canzona

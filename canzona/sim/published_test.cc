// Predicts what papers have published. bench/results/clusters.md and
// docs/clusters.md quote these figures; the test prints them as the former has
// them:
//
//   build/rooms/sim/canzona_sim_test --gtest_filter='Published.*'
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "canzona/base/files.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/predict/predict.h"
#include "canzona/shapes/read_model.h"
#include "canzona/sim/activations.h"
#include "canzona/sim/known_gpus.h"
#include "canzona/sim/plan_iteration.h"
#include "canzona/sim/test_published.h"

namespace canzona::sim::published_test {
namespace {

Model model_of(const Setup& setup) {
  const ReadOptions options{.fused = setup.fused};
  return setup.config.empty()
             ? read_model(setup.model, options)
             : model_from_config(setup.config, setup.model, options);
}

Workload work_of(const Row& row, const Model& model) {
  Workload work;
  work.compute = {.tokens = row.setup.tokens,
                  .length = row.setup.length,
                  .width = attention_width(model)};
  work.compute.experts_per_token = model.experts_per_token;
  work.num_micro_batches = row.setup.micro_batches;
  work.hidden = hidden_width(model);
  work.bytes_per_activation = 2;
  work.segment_bytes = 16 << 20;
  work.overlap = parse_overlap(row.overlap);
  work.rings = true;  // sums and gathers by a library's rings
  return work;
}

const CostTable& costs_of_h200() {
  const std::string path =
      CANZONA_TEST_DATA "/../../cost_tables/nvidia_h200.json";
  static const CostTable table =
      CostTable::parse(read_file(path, int64_t{64} << 20, "cost table"), path);
  return table;
}

Plan plan_for(const Row& row, const Model& model) {
  const Setup& setup = row.setup;
  const auto rule = make_rule_facts(
      setup.rule, with_device(setup.rule, setup.rule_options, "cuda"));
  const Mesh mesh = parse_mesh(setup.mesh);
  PlanOptions options;
  options.strategy = row.strategy;
  options.ranks_per_node = kRanksPerNode;
  if (!setup.zero.empty())
    options.zero.sizes = parse_zero(setup.zero, mesh.homes());
  return make_plan({.model = model,
                    .mesh = mesh,
                    .rule = *rule,
                    .options = options,
                    .cost_table = setup.measured ? &costs_of_h200() : nullptr});
}

// A row, planned once; only rates change between predictions.
class PlannedRow {
 public:
  PlannedRow(const Paper& paper, const Row& row) : paper_(paper), row_(row) {
    const Model model = model_of(row.setup);
    plan_ = plan_for(row, model);
    work_ = work_of(row, model);
  }

  const Row& row() const { return row_; }

  double predicted(const Rates& rates) {
    set(rates);
    if (row_.quantity == Quantity::kStep) {
      double slowest = 0;
      for (const RankCost& rank : predict(plan_))
        slowest = std::max(slowest, rank.step_seconds_mean);
      return slowest;
    }
    const ClusterPrediction p = predict_cluster(plan_, work_);
    if (row_.quantity == Quantity::kIteration) return p.seconds();
    if (row_.quantity == Quantity::kForwardBackward)
      return p.seconds() - p.step_seconds();
    return p.flops_per_card() / paper_.peak_flops;
  }
  double error_percent(const Rates& rates) {
    return 100 * (predicted(rates) / row_.value - 1);
  }

 private:
  void set(const Rates& rates) {
    const Links links{.intra_bytes_per_second = rates.exchange_bytes_per_second,
                      .inter_bytes_per_second = rates.node_bytes_per_second,
                      .latency_seconds = kLatencySeconds,
                      .nominal = false};
    const auto set_in = [&](SettledRequest& request) {
      request.options.links = links;
      if (!row_.setup.measured)
        request.cost_basis.seconds_per_tick = 1 / rates.card_flops;
    };
    set_in(plan_);
    for (PlanPart& part : plan_.parts) set_in(part);
    work_.compute.flops_per_second = rates.card_flops;
    work_.compute.attention_flops_per_second = rates.attention_flops;
  }

  const Paper& paper_;
  const Row& row_;
  Plan plan_;
  Workload work_;
};

using Square = std::array<std::array<double, 3>, 3>;
using Triple = std::array<double, 3>;

// Solves a · x = b for the first n rows by elimination; a must be symmetric
// with a positive diagonal.
Triple solved(Square a, Triple b, size_t n) {
  for (size_t i = 0; i < n; ++i)
    for (size_t r = i + 1; r < n; ++r) {
      const double factor = a[r][i] / a[i][i];
      for (size_t c = i; c < n; ++c) a[r][c] -= factor * a[i][c];
      b[r] -= factor * b[i];
    }
  Triple x{};
  for (size_t i = n; i-- > 0;) {
    double rest = b[i];
    for (size_t c = i + 1; c < n; ++c) rest -= a[i][c] * x[c];
    x[i] = rest / a[i][i];
  }
  return x;
}

// Fits the logarithms of the rates by least squares of log(predicted /
// published): damped Gauss-Newton with finite differences.
class RateFit {
 public:
  RateFit(const Paper& paper, std::vector<PlannedRow>& rows) : paper_(paper) {
    for (PlannedRow& one : rows)
      if (one.row().fit) rows_.push_back(&one);
  }

  Rates run() {
    Rates rates = paper_.rates;
    std::vector<double> off = logs(rates);
    double damping = 1e-3;
    for (int step = 0; step < 60 && damping < 1e9; ++step) {
      const Rates tried = stepped(rates, off, damping);
      const std::vector<double> now = logs(tried);
      if (squares(now) < squares(off)) {
        const bool is_done = squares(off) - squares(now) < 1e-10;
        rates = tried;
        off = now;
        damping /= 10;
        if (is_done) break;
      } else {
        damping *= 10;
      }
    }
    return rates;
  }

 private:
  static constexpr double kDifference = 1e-3;

  std::vector<double> logs(const Rates& rates) {
    std::vector<double> out;
    for (PlannedRow* one : rows_)
      out.push_back(std::log(one->predicted(rates) / one->row().value));
    return out;
  }
  static double squares(const std::vector<double>& values) {
    double sum = 0;
    for (const double v : values) sum += v * v;
    return sum;
  }

  Rates stepped(const Rates& rates, const std::vector<double>& off,
                double damping) {
    const size_t n = paper_.fitted.size();
    std::vector<std::vector<double>> slopes;
    for (const auto rate : paper_.fitted) {
      Rates more = rates;
      more.*rate *= std::exp(kDifference);
      slopes.push_back(logs(more));
      for (size_t i = 0; i < off.size(); ++i)
        slopes.back()[i] = (slopes.back()[i] - off[i]) / kDifference;
    }
    Square a{};
    Triple b{};
    for (size_t r = 0; r < n; ++r) {
      for (size_t i = 0; i < off.size(); ++i) {
        b[r] -= slopes[r][i] * off[i];
        for (size_t c = 0; c < n; ++c) a[r][c] += slopes[r][i] * slopes[c][i];
      }
      a[r][r] += damping * (a[r][r] + 1e-9);
    }
    const Triple change = solved(a, b, n);
    Rates out = rates;
    for (size_t r = 0; r < n; ++r)
      out.*paper_.fitted[r] *= std::exp(std::clamp(change[r], -1.0, 1.0));
    return out;
  }

  const Paper& paper_;
  std::vector<PlannedRow*> rows_;
};

std::vector<PlannedRow> planned(const Paper& paper) {
  std::vector<PlannedRow> rows;
  for (const Row& row : paper.rows) rows.emplace_back(paper, row);
  return rows;
}

void print(const Row& row, double predicted) {
  const bool is_share = row.quantity == Quantity::kUtilization;
  const double factor = is_share ? 100 : 1e3;
  const char* unit = is_share ? "%" : "ms";
  const double tenths = std::round(1000 * (predicted / row.value - 1));
  std::printf("| %s | %.1f %s | %.1f %s | %+.1f %% | %s |\n", row.name.c_str(),
              factor * row.value, unit, factor * predicted, unit,
              tenths / 10 + 0.0,  // not -0
              row.fit ? "fitted" : row.where.c_str());
}

// Half of the last digit that is quoted, and a little more.
constexpr double kOfADigit = 0.51;

// What is larger in a paper is larger in the prediction, so that a choice made
// by it is right.
void expect_order(const std::vector<Row>& rows,
                  const std::vector<double>& predicted) {
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t j = 0; j < rows.size(); ++j)
      if (!rows[i].group.empty() && rows[i].group == rows[j].group &&
          rows[i].value < rows[j].value) {
        EXPECT_LT(predicted[i], predicted[j])
            << rows[i].name << ", " << rows[j].name;
      }
}

void expect_as_quoted(const Paper& paper) {
  std::vector<PlannedRow> rows = planned(paper);
  const Rates rates = RateFit(paper, rows).run();
  std::printf(
      "\n%s (%s): card %.0f Tflop/s, %.0f in attention, %.1f GB/s inside a "
      "node, %.1f GB/s between nodes\n\n| published | value | predicted | "
      "error | |\n"
      "|---|---|---|---|---|\n",
      paper.name.c_str(), paper.source.c_str(), rates.card_flops / 1e12,
      (rates.attention_flops > 0 ? rates.attention_flops : rates.card_flops) /
          1e12,
      rates.exchange_bytes_per_second / 1e9, rates.node_bytes_per_second / 1e9);
  std::vector<double> predicted;
  for (PlannedRow& one : rows) {
    predicted.push_back(one.predicted(rates));
    print(one.row(), predicted.back());
    EXPECT_NEAR(one.error_percent(rates), one.row().error_percent,
                0.1 * kOfADigit)
        << one.row().name;
  }
  expect_order(paper.rows, predicted);
  EXPECT_NEAR(rates.card_flops, paper.quoted.card_flops, 1e12 * kOfADigit);
  EXPECT_NEAR(rates.attention_flops, paper.quoted.attention_flops,
              1e12 * kOfADigit);
  EXPECT_NEAR(rates.exchange_bytes_per_second,
              paper.quoted.exchange_bytes_per_second, 0.1e9 * kOfADigit);
  EXPECT_NEAR(rates.node_bytes_per_second, paper.quoted.node_bytes_per_second,
              0.1e9 * kOfADigit);
}

TEST(Published, StepsAndIterationsOfCanzonaAreAsQuoted) {
  expect_as_quoted(canzona_paper());
}

TEST(Published, UtilizationOfAsyncHzpIsAsQuoted) {
  expect_as_quoted(asynchzp_paper());
}

// The gain of HZP over tensor parallelism. (At 128K tokens the error of the
// latter is quoted instead.)
TEST(Published, GainsOfAsyncHzpArePredictedWithinFivePoints) {
  const Paper paper = asynchzp_paper();
  std::vector<PlannedRow> rows = planned(paper);
  for (const char* length : {"8K", "32K"}) {
    double published = 0, predicted = 0;
    for (PlannedRow& one : rows) {
      if (one.row().group != length) continue;
      const double found = one.predicted(paper.quoted);
      if (published == 0) {
        published = one.row().value;
        predicted = found;
      } else if (one.row().name.ends_with("tp 8")) {
        published /= one.row().value;
        predicted /= found;
      }
    }
    std::printf("%s: gain of HZP %.1f %%, predicted %.1f %%\n", length,
                100 * published, 100 * predicted);
    EXPECT_GT(published, 1.1) << length;
    EXPECT_NEAR(predicted, published, 0.05) << length;
  }
}

// The shares of a peak that GPUs by name are assumed to reach are these two
// rates, rounded down to 0.05.
TEST(Published, StatedSharesAreThoseThatAsyncHzpFits) {
  const Paper paper = asynchzp_paper();
  const auto rounded_down = [&](double rate) {
    return std::floor(20 * rate / paper.peak_flops) / 20;
  };
  EXPECT_DOUBLE_EQ(kProductShare, rounded_down(paper.quoted.card_flops));
  EXPECT_DOUBLE_EQ(kAttentionShare, rounded_down(paper.quoted.attention_flops));
}

// The three steps of Canzona would follow exactly from rates that no card has.
TEST(Published, ThreeRatesForThreeStepsOfCanzonaAreNotPlausible) {
  Paper paper = canzona_paper();
  paper.fitted.push_back(&Rates::exchange_bytes_per_second);
  std::vector<PlannedRow> rows = planned(paper);
  const Rates rates = RateFit(paper, rows).run();
  for (PlannedRow& one : rows)
    if (one.row().fit) {
      EXPECT_NEAR(one.error_percent(rates), 0, 0.1) << one.row().name;
    }
  EXPECT_NEAR(rates.card_flops, 913e12, 1e12 * kOfADigit);
  EXPECT_NEAR(rates.exchange_bytes_per_second, 52e9, 1e9 * kOfADigit);
}

}  // namespace
}  // namespace canzona::sim::published_test

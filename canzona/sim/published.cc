#include "canzona/sim/published.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/index.h"
#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/shapes/read_model.h"
#include "canzona/sim/activations.h"
#include "canzona/sim/cluster_prediction.h"

namespace canzona {
namespace {

constexpr const char* kQuantityNames[] = {"step_seconds",
                                          "forward_backward_seconds",
                                          "iteration_seconds", "utilization"};

Model published_model(const PublishedCell& cell) {
  const ReadOptions options{.fused = cell.fused};
  return cell.config.empty()
             ? read_model(cell.model, options)
             : model_from_config(cell.config, cell.model, options);
}

Workload published_work(const PublishedCell& cell, const Model& model) {
  Workload work;
  work.compute = {.tokens = cell.tokens,
                  .length = cell.length,
                  .width = attention_width(model)};
  work.compute.experts_per_token = model.experts_per_token;
  work.num_micro_batches = cell.micro_batches;
  work.hidden = hidden_width(model);
  work.bytes_per_activation = 2;
  work.segment_bytes = 16 << 20;
  if (!cell.overlap.empty()) work.overlap = parse_overlap(cell.overlap);
  return work;
}

// A cell, planned once; only rates change between predictions.
class CellModel {
 public:
  CellModel(const PublishedPaper& paper, const PublishedCell& cell)
      : paper_(paper), cell_(cell) {
    const Model model = published_model(cell);
    const auto rule = make_rule_facts(
        cell.rule, with_device(cell.rule, cell.rule_options, "cuda"));
    const Mesh mesh = parse_mesh(cell.mesh);
    PlanOptions options;
    options.strategy = cell.strategy;
    options.ranks_per_node = paper.ranks_per_node;
    if (!cell.zero.empty())
      options.zero.sizes = parse_zero(cell.zero, mesh.homes());
    plan_ = make_plan({model, mesh, *rule, options});
    work_ = published_work(cell, model);
    work_.rings = paper.rings;
  }

  double predicted(const PublishedRates& rates) {
    set(rates);
    if (cell_.quantity == PublishedQuantity::kStep) {
      double slowest = 0;
      for (const RankCost& rank : predict(plan_))
        slowest = std::max(slowest, rank.step_seconds_mean);
      return slowest;
    }
    const ClusterPrediction p = predict_cluster(plan_, work_);
    if (cell_.quantity == PublishedQuantity::kIteration) return p.seconds();
    if (cell_.quantity == PublishedQuantity::kForwardBackward)
      return p.seconds() - p.step_seconds();
    return p.flops_per_card() / paper_.peak_flops;
  }

 private:
  void set(const PublishedRates& rates) {
    const Links links{.intra_bytes_per_second = rates.exchange_bytes_per_second,
                      .inter_bytes_per_second = rates.node_bytes_per_second,
                      .latency_seconds = paper_.latency_seconds,
                      .nominal = false};
    const auto set_in = [&](SettledRequest& request) {
      request.options.links = links;
      request.cost_basis.seconds_per_tick = 1 / rates.card_flops;
    };
    set_in(plan_);
    for (PlanPart& part : plan_.parts) set_in(part);
    work_.compute.flops_per_second = rates.card_flops;
  }

  const PublishedPaper& paper_;
  const PublishedCell& cell_;
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
  RateFit(const PublishedPaper& paper, std::vector<CellModel*> models,
          std::vector<double> values)
      : paper_(paper), models_(std::move(models)), values_(std::move(values)) {}

  PublishedRates run() {
    PublishedRates rates = paper_.rates;
    if (paper_.fitted.empty() || models_.empty()) return rates;
    std::vector<double> off = logs(rates);
    double damping = 1e-3;
    for (int step = 0; step < kMostFitSteps && damping < 1e9; ++step) {
      const PublishedRates tried = stepped(rates, off, damping);
      const std::vector<double> now = logs(tried);
      if (squares(now) < squares(off)) {
        const bool is_done = squares(off) - squares(now) < 1e-16;
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
  static constexpr int kMostFitSteps = 60;
  static constexpr double kDifference = 1e-3;

  std::vector<double> logs(const PublishedRates& rates) {
    std::vector<double> out;
    for (size_t i = 0; i < models_.size(); ++i)
      out.push_back(std::log(models_[i]->predicted(rates) / values_[i]));
    return out;
  }
  static double squares(const std::vector<double>& values) {
    double sum = 0;
    for (const double v : values) sum += v * v;
    return sum;
  }

  PublishedRates stepped(const PublishedRates& rates,
                         const std::vector<double>& off, double damping) {
    const size_t n = paper_.fitted.size();
    std::vector<std::vector<double>> slopes;
    for (const auto rate : paper_.fitted) {
      PublishedRates more = rates;
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
    PublishedRates out = rates;
    for (size_t r = 0; r < n; ++r)
      out.*paper_.fitted[r] *= std::exp(std::clamp(change[r], -1.0, 1.0));
    return out;
  }

  const PublishedPaper& paper_;
  std::vector<CellModel*> models_;
  std::vector<double> values_;
};

// Checks for each group, in the order of the table, whether predicted values
// have the order of the published ones.
std::vector<PublishedOrder> orders_of(const std::vector<PredictedCell>& cells) {
  std::vector<PublishedOrder> orders;
  for (const PredictedCell& a : cells) {
    if (a.cell.group.empty()) continue;
    auto order =
        std::ranges::find(orders, a.cell.group, &PublishedOrder::group);
    if (order == orders.end())
      order = orders.insert(orders.end(), {a.cell.group, true});
    for (const PredictedCell& b : cells)
      if (b.cell.group == a.cell.group && a.cell.value < b.cell.value &&
          !(a.predicted < b.predicted))
        order->right = false;
  }
  return orders;
}

}  // namespace

std::string_view to_string(PublishedQuantity quantity) {
  return kQuantityNames[static_cast<size_t>(quantity)];
}

double PredictedPaper::worst_held_back() const {
  double worst = 0;
  for (const PredictedCell& cell : cells)
    if (!cell.cell.fit) worst = std::max(worst, std::abs(cell.error()));
  return worst;
}

PredictedPaper predict_paper(const PublishedPaper& paper) {
  std::vector<std::unique_ptr<CellModel>> models;
  std::vector<CellModel*> fitted;
  std::vector<double> values;
  for (const PublishedCell& cell : paper.cells) {
    models.push_back(std::make_unique<CellModel>(paper, cell));
    if (!cell.fit) continue;
    fitted.push_back(models.back().get());
    values.push_back(cell.value);
  }
  PredictedPaper out;
  out.paper = paper;
  out.rates = RateFit(paper, fitted, values).run();
  for (size_t i = 0; i < models.size(); ++i)
    out.cells.push_back({paper.cells[i], models[i]->predicted(out.rates)});
  out.orders = orders_of(out.cells);
  return out;
}

std::vector<PredictedPaper> predict_published(
    const std::vector<PublishedPaper>& papers) {
  std::vector<PredictedPaper> out;
  for (const PublishedPaper& paper : papers)
    out.push_back(predict_paper(paper));
  return out;
}

}  // namespace canzona

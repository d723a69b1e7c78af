#include "canzona/sim/published.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/shapes/read_model.h"
#include "canzona/sim/activations.h"
#include "canzona/sim/plan_iteration.h"

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

// Reads the table of published times from JSON.

namespace {

constexpr int64_t kMostTokens = int64_t{1} << 40;

double read_above_zero(const Json& object, const char* key,
                       const std::string& where) {
  const double number = get_number(object, key, where);
  if (number > 0) return number;
  throw UsageError(
      cat(where, ": ", key, " is ", number, ", expected more than 0"));
}

std::string text_or_none(const Json& object, const char* key,
                         const std::string& where) {
  return object.contains(key) ? get_string(object, key, where) : "";
}

int64_t count_or(const Json& object, const char* key, int64_t usual,
                 const std::string& where) {
  return object.contains(key) ? get_integer(object, key, 1, kMostTokens, where)
                              : usual;
}

template <class Value>
Value named(const std::map<std::string, Value>& known, const std::string& word,
            const std::string& where) {
  if (const auto found = known.find(word); found != known.end())
    return found->second;
  std::vector<std::string> words;
  for (const auto& [name, value] : known) words.push_back(name);
  throw UsageError(cat(where, ": ", quoted(word), ", expected ",
                       join(words, ", "), did_you_mean(word, words)));
}

PublishedQuantity read_quantity(const Json& json, const std::string& where) {
  std::map<std::string, PublishedQuantity> known;
  for (const auto quantity :
       {PublishedQuantity::kStep, PublishedQuantity::kForwardBackward,
        PublishedQuantity::kIteration, PublishedQuantity::kUtilization})
    known[std::string(to_string(quantity))] = quantity;
  return named(known, get_string(json, "quantity", where),
               cat(where, ": quantity"));
}

RuleOptions read_published_options(const Json& json, const std::string& where) {
  RuleOptions options;
  if (!json.contains("rule_options")) return options;
  const Json& object = get_member(json, "rule_options", where);
  if (!object.is_object())
    throw UsageError(cat(where, ": rule_options is not an object"));
  for (const auto& [name, value] : object.items())
    options[name] = get_string(object, name.c_str(), where);
  return options;
}

using Configs = std::map<std::string, std::string>;

PublishedCell read_cell(const Json& json, const Configs& configs,
                        const std::string& where) {
  require_known_keys(
      json,
      {"name", "where", "group", "model", "fused", "mesh", "rule",
       "rule_options", "strategy", "zero", "overlap", "tokens", "length",
       "micro_batches", "quantity", "value", "fit", "note"},
      where);
  PublishedCell cell;
  cell.name = get_string(json, "name", where);
  cell.where = get_string(json, "where", where);
  cell.group = text_or_none(json, "group", where);
  cell.model = get_string(json, "model", where);
  if (const auto own = configs.find(cell.model); own != configs.end())
    cell.config = own->second;
  if (json.contains("fused")) cell.fused = get_bool(json, "fused", where);
  cell.mesh = get_string(json, "mesh", where);
  cell.rule = get_string(json, "rule", where);
  cell.rule_options = read_published_options(json, where);
  cell.strategy = get_string(json, "strategy", where);
  cell.zero = text_or_none(json, "zero", where);
  cell.overlap = text_or_none(json, "overlap", where);
  cell.tokens = count_or(json, "tokens", cell.tokens, where);
  cell.length = count_or(json, "length", cell.length, where);
  cell.micro_batches = count_or(json, "micro_batches", 1, where);
  cell.quantity = read_quantity(json, where);
  cell.value = read_above_zero(json, "value", where);
  if (json.contains("fit")) cell.fit = get_bool(json, "fit", where);
  cell.note = text_or_none(json, "note", where);
  return cell;
}

std::vector<double PublishedRates::*> read_fitted(const Json& json,
                                                  const std::string& where) {
  const std::map<std::string, double PublishedRates::*> known{
      {"card", &PublishedRates::card_flops},
      {"exchange", &PublishedRates::exchange_bytes_per_second},
      {"nodes", &PublishedRates::node_bytes_per_second}};
  const Json& array = get_member(json, "fitted", where);
  if (!array.is_array())
    throw UsageError(cat(where, ": fitted is no array of names"));
  std::vector<double PublishedRates::*> fitted;
  for (const Json& one : array) {
    if (!one.is_string())
      throw UsageError(cat(where, ": fitted is no array of names"));
    const auto rate =
        named(known, one.get<std::string>(), cat(where, ": fitted"));
    if (std::ranges::find(fitted, rate) != fitted.end())
      throw UsageError(cat(where, ": fitted names ",
                           quoted(one.get<std::string>()), " twice"));
    fitted.push_back(rate);
  }
  return fitted;
}

void require_enough_to_fit(const PublishedPaper& paper,
                           const std::string& where) {
  const auto marked =
      std::ranges::count(paper.cells, true, &PublishedCell::fit);
  if (marked < std::ssize(paper.fitted))
    throw UsageError(cat(where, ": ", paper.fitted.size(),
                         " numbers are fitted to ", marked,
                         " cells; mark as many with \"fit\": true"));
  const bool wants_peak =
      std::ranges::any_of(paper.cells, [](const PublishedCell& cell) {
        return cell.quantity == PublishedQuantity::kUtilization;
      });
  if (wants_peak && !(paper.peak_flops > 0))
    throw UsageError(cat(where, ": utilization needs peak_tflops"));
}

PublishedPaper read_paper(const Json& json, const Configs& configs,
                          const std::string& where) {
  constexpr double kTera = 1e12;
  require_known_keys(
      json,
      {"name", "source", "ranks_per_node", "card_tflops", "peak_tflops",
       "exchange_bytes_per_second", "node_bytes_per_second", "latency_seconds",
       "rings", "fitted", "cells"},
      where);
  PublishedPaper paper;
  paper.name = get_string(json, "name", where);
  paper.source = get_string(json, "source", where);
  paper.ranks_per_node = static_cast<int32_t>(
      get_integer(json, "ranks_per_node", 1, kMaxWorld, where));
  if (json.contains("peak_tflops"))
    paper.peak_flops = kTera * read_above_zero(json, "peak_tflops", where);
  paper.latency_seconds = read_above_zero(json, "latency_seconds", where);
  if (json.contains("rings")) paper.rings = get_bool(json, "rings", where);
  paper.rates = {kTera * read_above_zero(json, "card_tflops", where),
                 read_above_zero(json, "exchange_bytes_per_second", where),
                 read_above_zero(json, "node_bytes_per_second", where)};
  paper.fitted = read_fitted(json, where);
  const Json& cells = get_member(json, "cells", where);
  if (!cells.is_array()) throw UsageError(cat(where, ": cells is no array"));
  for (size_t i = 0; i < cells.size(); ++i)
    paper.cells.push_back(
        read_cell(cells[i], configs, cat(where, ".cells[", i, "]")));
  require_enough_to_fit(paper, where);
  return paper;
}

Configs read_configs(const Json& root, const std::string& where) {
  Configs configs;
  if (!root.contains("models")) return configs;
  const Json& models = get_member(root, "models", where);
  for (const Json& model : models) {
    require_known_keys(model, {"name", "config"}, cat(where, ": models"));
    configs[get_string(model, "name", where)] =
        get_member(model, "config", where).dump();
  }
  return configs;
}

}  // namespace

std::vector<PublishedPaper> read_published(std::string_view json,
                                           const std::string& where) {
  const Json root = parse_json(json, {.what = where, .max_bytes = 1 << 20});
  require_known_keys(root, {"format", "version", "models", "papers"}, where);
  if (get_string(root, "format", where) != "canzona.published" ||
      get_integer(root, "version", 0, INT32_MAX, where) != 1)
    throw UsageError(cat(where, ": expected canzona.published, version 1"));
  const Configs configs = read_configs(root, where);
  const Json& papers = get_member(root, "papers", where);
  if (!papers.is_array()) throw UsageError(cat(where, ": papers is no array"));
  std::vector<PublishedPaper> out;
  for (size_t i = 0; i < papers.size(); ++i)
    out.push_back(
        read_paper(papers[i], configs, cat(where, ": papers[", i, "]")));
  return out;
}

std::vector<PublishedPaper> published_papers() {
  return read_published(published_json(), "published.json");
}

}  // namespace canzona

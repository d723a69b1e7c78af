#include "canzona/report/cluster_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/plan/zero.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"

namespace canzona {
namespace {

// "first stage", "stage 3", "last stage"; "all ranks" without a pipeline.
std::string kind_name(const Plan& plan, const IterationPrediction& kind) {
  if (plan.mesh.pp == 1) return "all ranks";
  if (kind.stage == 0) return "first stage";
  return kind.stage + 1 == plan.mesh.pp ? "last stage"
                                        : cat("stage ", kind.stage);
}

struct PartOfTime {
  const char* name;  // in tables
  const char* key;   // in JSON
  double IterationTime::*seconds;
};

// The parts add up to the iteration.
constexpr PartOfTime kPartsOfTime[] = {
    {"compute", "compute_seconds", &IterationTime::compute_seconds},
    {"step", "step_seconds", &IterationTime::step_seconds},
    {"bubble", "bubble_seconds", &IterationTime::bubble_seconds},
    {"parameters", "waited_parameters_seconds",
     &IterationTime::waited_parameters},
    {"gradients", "waited_gradients_seconds", &IterationTime::waited_gradients},
    {"sums", "waited_step_seconds", &IterationTime::waited_step}};

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

std::string collectives_word(const ShownCluster& shown) {
  if (shown.collectives == "node") return "once per node";
  return shown.collectives == "ring" ? "rings" : "pairwise";
}

std::string work_line(const ShownCluster& shown) {
  const Workload& work = shown.work;
  return cat(counted(work.num_micro_batches, "micro-batch"), " of ",
             grouped(work.compute.tokens), " tokens in sequences of ",
             grouped(work.compute.length), " on a data-parallel rank; ",
             to_string(work.overlap), " overlap; sums and gathers ",
             collectives_word(shown));
}

std::string spread_line(const ShownCluster& shown) {
  const RankSpread& spread = shown.cluster.spread;
  if (spread == RankSpread()) return "none: all ranks are alike";
  return fmt::format(
      "compute {}: the slowest of {} cards takes {:.3f} times the mean; "
      "sequences {}: the longest batch {:.3f} times the mean",
      percent(spread.compute), grouped(shown.plan.mesh.world()),
      shown.predicted.slowest_card, percent(spread.length),
      shown.predicted.longest_batch);
}

std::string card_line(const ShownCluster& shown) {
  const Card& card = shown.cluster.card;
  const std::string rules = card.cost_table.empty()
                                ? "rules at the same rate"
                                : cat("rules as measured on ",
                                      printable(shown.plan.cost_basis.source));
  return fmt::format("{}: {:g} Tflop/s in forward and backward, {}",
                     printable(card.name), card.flops_per_second / 1e12, rules);
}

std::string levels_table(const ShownCluster& shown, const Ink& ink) {
  Table table("<>>>>");
  table.header({"level", "ranks", "per rank", "latency", "oversubscribed"});
  for (const LinkLevel& level : shown.cluster.levels)
    table.row({printable(level.name), grouped(level.ranks),
               bandwidth_text(level.bytes_per_second),
               human_seconds(level.latency_seconds),
               fmt::format("{:g}", level.oversubscription)});
  return title(ink, "Links") + table.text(ink);
}

std::string kinds_table(const ShownCluster& shown, const Ink& ink) {
  const ClusterPrediction& p = shown.predicted;
  Table table("<>>>>>>>>>");
  table.header({"rank", "iteration", "compute", "step", "bubble", "parameters",
                "gradients", "sums", "memory", "between"});
  for (const IterationPrediction& kind : p.kinds) {
    std::vector<std::string> cells{kind_name(shown.plan, kind),
                                   human_seconds(kind.time.seconds)};
    for (const PartOfTime& part : kPartsOfTime)
      cells.push_back(human_seconds(kind.time.*part.seconds));
    cells.push_back(human_bytes(kind.memory_bytes + shown.activations));
    cells.push_back(human_bytes(kind.slow_bytes));
    table.row(cells);
  }
  return title(ink,
               "Predicted time of one rank of each kind; the cost of links is "
               "the wait for parameters, gradients and sums") +
         table.text(ink);
}

std::string result_lines(const ShownCluster& shown, const Ink& ink) {
  const ClusterPrediction& p = shown.predicted;
  return "\n  " +
         ink(Tone::kBold,
             cat("iteration ", human_seconds(p.seconds()),
                 ", including the step of ", human_seconds(p.step_seconds()))) +
         fmt::format(
             " (predicted)\n  {} tokens/s, {:.1f} Tflop/s per card, {} of its "
             "attainable rate; {} of communication hidden\n",
             human_count(p.tokens_per_second()), p.flops_per_card() / 1e12,
             percent(p.used_share()), percent(p.time().hidden_fraction()));
}

}  // namespace

std::string cluster_text(const ShownCluster& shown, const Ink& ink) {
  const Plan& plan = shown.plan;
  std::string out =
      ink(Tone::kBold, printable(shown.cluster.name)) +
      fmt::format(": {}, {} ({}) on {}, {}, {}\n", printable(plan.model.name),
                  plan.rule, plan.options.strategy, to_string(plan.mesh),
                  counted(plan.mesh.world(), "rank"),
                  zero_name(plan.options.zero.sizes, plan.mesh.homes()));
  constexpr size_t kColumn = 14;
  out += labelled(ink, "iteration", work_line(shown), kColumn);
  if (may_have_teams(plan))
    out += labelled(ink, "teams", describe_teams(plan), kColumn);
  out += labelled(ink, "card", card_line(shown), kColumn);
  out += labelled(ink, "spread", spread_line(shown), kColumn);
  return out + levels_table(shown, ink) + kinds_table(shown, ink) +
         result_lines(shown, ink);
}

namespace {

void write_level(JsonWriter& out, const LinkLevel& level) {
  out.begin_object().field("name", level.name).field("ranks", level.ranks);
  out.field("bytes_per_second", level.bytes_per_second);
  out.field("latency_seconds", level.latency_seconds);
  out.field("oversubscription", level.oversubscription).end_object();
}

void write_cluster(JsonWriter& out, const ShownCluster& shown) {
  const Cluster& cluster = shown.cluster;
  out.member("cluster").begin_object().field("name", cluster.name);
  out.member("card").begin_object().field("name", cluster.card.name);
  out.field("tflops", cluster.card.flops_per_second / 1e12);
  out.field("cost", shown.plan.cost_basis.source);
  out.end_object().member("levels").begin_array();
  for (const LinkLevel& level : cluster.levels) write_level(out, level);
  out.end_array().member("spread").begin_object();
  out.field("compute", cluster.spread.compute);
  out.field("length", cluster.spread.length).end_object();
  out.field("collectives", shown.collectives).end_object();
}

void write_kind(JsonWriter& out, const ShownCluster& shown,
                const IterationPrediction& kind) {
  const IterationTime& time = kind.time;
  out.begin_object().field("kind", kind_name(shown.plan, kind));
  out.field("stage", kind.stage).field("seconds", time.seconds);
  for (const PartOfTime& part : kPartsOfTime)
    out.field(part.key, time.*part.seconds);
  out.field("busy_seconds", time.busy_seconds);
  out.field("busy_intra_seconds", time.busy_intra_seconds);
  out.field("busy_inter_seconds", time.busy_inter_seconds);
  out.field("hidden_fraction", time.hidden_fraction());
  out.field("memory_bytes", kind.memory_bytes + shown.activations);
  out.field("sent_inter_bytes", kind.slow_bytes);
  out.field("sent_intra_bytes", kind.fast_bytes).end_object();
}

void write_prediction(JsonWriter& out, const ShownCluster& shown) {
  const ClusterPrediction& p = shown.predicted;
  out.member("predicted").begin_object();
  out.field("iteration_seconds", p.seconds());
  out.field("step_seconds", p.step_seconds());
  out.field("tokens", p.tokens);
  out.field("tokens_per_second", p.tokens_per_second());
  out.field("tflops_per_card", p.flops_per_card() / 1e12);
  out.field("used_share", p.used_share());
  out.field("hidden_fraction", p.time().hidden_fraction());
  out.field("slowest_card", p.slowest_card);
  out.field("longest_batch", p.longest_batch);
  out.field("memory_per_rank_max", p.memory_bytes() + shown.activations);
  out.field("activation_bytes", shown.activations);
  out.member("kinds").begin_array();
  for (const IterationPrediction& kind : p.kinds) write_kind(out, shown, kind);
  out.end_array().end_object();
}

std::string write_report(JsonWriter out, const ShownCluster& shown) {
  const Plan& plan = shown.plan;
  const Workload& work = shown.work;
  out.begin_object().field("report", "cluster");
  out.field("model", plan.model.name);
  write_mesh(out.member("mesh"), plan.mesh);
  out.field("world", plan.mesh.world()).field("rule", plan.rule);
  out.field("strategy", plan.options.strategy);
  if (may_have_teams(plan)) write_teams_by_size(out.member("teams"), plan);
  out.field("zero", zero_name(plan.options.zero.sizes, plan.mesh.homes()));
  out.member("iteration").begin_object();
  out.field("micro_batches", work.num_micro_batches);
  out.field("tokens", work.compute.tokens);
  out.field("length", work.compute.length);
  out.field("overlap", to_string(work.overlap)).end_object();
  write_cluster(out, shown);
  write_prediction(out, shown);
  out.field("verdict", cat(work_line(shown), ". ", card_line(shown),
                           ". Spread: ", spread_line(shown), "."));
  return out.end_object().take();
}

}  // namespace

std::string cluster_json(const ShownCluster& shown) {
  return write_report(JsonWriter(2), shown) + "\n";
}

std::string cluster_html(const ShownCluster& shown) {
  return make_page(write_report(JsonWriter(), shown),
                   {"bars.js", "cluster.js"});
}

namespace {

// The largest error at which a prediction counts as good.
constexpr double kNearEnough = 0.15;

std::string amount_text(const PublishedCell& cell, double value) {
  return cell.quantity == PublishedQuantity::kUtilization
             ? fmt::format("{:.1f} %", 100 * value)
             : human_seconds(value);
}

bool is_fitted(const PublishedPaper& paper, double PublishedRates::*rate) {
  return std::ranges::find(paper.fitted, rate) != paper.fitted.end();
}

std::string rates_line(const PredictedPaper& shown) {
  const auto mark = [&](double PublishedRates::*rate) {
    return is_fitted(shown.paper, rate) ? " (fitted)" : "";
  };
  const PublishedRates& rates = shown.rates;
  return fmt::format(
      "card {:.0f} Tflop/s{}, {:.1f} GB/s inside a node{}, {:.1f} GB/s between "
      "nodes{}",
      rates.card_flops / 1e12, mark(&PublishedRates::card_flops),
      rates.exchange_bytes_per_second / 1e9,
      mark(&PublishedRates::exchange_bytes_per_second),
      rates.node_bytes_per_second / 1e9,
      mark(&PublishedRates::node_bytes_per_second));
}

std::string cells_table(const PredictedPaper& shown, const Ink& ink) {
  Table table("<>>>~");
  table.header({"published", "value", "predicted", "error", ""});
  for (const PredictedCell& one : shown.cells) {
    const double error = one.error();
    const Tone tone = one.cell.fit                     ? Tone::kDim
                      : std::abs(error) <= kNearEnough ? Tone::kGood
                                                       : Tone::kPoor;
    table.row({printable(one.cell.name), amount_text(one.cell, one.cell.value),
               amount_text(one.cell, one.predicted),
               ink(tone, fmt::format("{:+.1f} %", 100 * error)),
               one.cell.fit ? "fitted" : printable(one.cell.where)});
  }
  return table.text(ink);
}

// Returns remarks on single cells and on the order of groups.
std::string remarks_of(const PredictedPaper& shown, const Ink& ink) {
  std::vector<std::string> right, wrong;
  for (const PublishedOrder& order : shown.orders)
    (order.right ? right : wrong).push_back(printable(order.group));
  std::string out;
  constexpr size_t kColumn = 14;
  if (!right.empty())
    out += labelled(ink, "order right", join(right, "; "), kColumn);
  if (!wrong.empty())
    out += labelled(ink, "order wrong", join(wrong, "; "), kColumn);
  std::vector<std::string> said;
  for (const PredictedCell& one : shown.cells) {
    if (one.cell.note.empty() ||
        std::ranges::find(said, one.cell.note) != said.end())
      continue;
    said.push_back(one.cell.note);
    out += labelled(
        ink, "reason",
        cat(printable(one.cell.name), ": ", printable(one.cell.note)), kColumn);
  }
  return out;
}

void write_cell(JsonWriter& out, const PredictedCell& one) {
  const PublishedCell& cell = one.cell;
  out.begin_object().field("name", cell.name).field("where", cell.where);
  out.field("model", cell.model).field("fused", cell.fused);
  out.field("mesh", cell.mesh).field("rule", cell.rule);
  out.field("strategy", cell.strategy);
  if (!cell.zero.empty()) out.field("zero", cell.zero);
  out.field("quantity", to_string(cell.quantity)).field("value", cell.value);
  out.field("predicted", one.predicted).field("error", one.error());
  out.field("fitted", cell.fit);
  if (!cell.note.empty()) out.field("note", cell.note);
  out.end_object();
}

void write_rates(JsonWriter& out, const PredictedPaper& shown) {
  out.member("rates").begin_object();
  out.field("card_tflops", shown.rates.card_flops / 1e12);
  out.field("exchange_bytes_per_second", shown.rates.exchange_bytes_per_second);
  out.field("node_bytes_per_second", shown.rates.node_bytes_per_second);
  out.field("latency_seconds", shown.paper.latency_seconds);
  out.end_object();
}

}  // namespace

std::string published_text(const std::vector<PredictedPaper>& papers,
                           const Ink& ink) {
  std::string out;
  for (const PredictedPaper& shown : papers) {
    constexpr size_t kColumn = 14;
    out += title(ink, printable(shown.paper.name));
    out += labelled(ink, "source", printable(shown.paper.source), kColumn);
    out += labelled(ink, "rates", rates_line(shown), kColumn);
    out += "\n" + cells_table(shown, ink) + "\n" + remarks_of(shown, ink);
    out += labelled(
        ink, "held back",
        fmt::format("largest error {:.1f} %", 100 * shown.worst_held_back()),
        kColumn);
  }
  return out;
}

std::string published_view_json(const std::vector<PredictedPaper>& papers) {
  JsonWriter out(2);
  out.begin_object().member("papers").begin_array();
  for (const PredictedPaper& shown : papers) {
    out.begin_object().field("name", shown.paper.name);
    out.field("source", shown.paper.source);
    write_rates(out, shown);
    out.field("num_fitted", static_cast<int64_t>(shown.paper.fitted.size()));
    out.field("worst_held_back_error", shown.worst_held_back());
    out.member("cells").begin_array();
    for (const PredictedCell& one : shown.cells) write_cell(out, one);
    out.end_array().member("orders").begin_array();
    for (const PublishedOrder& order : shown.orders)
      out.begin_object()
          .field("group", order.group)
          .field("right", order.right)
          .end_object();
    out.end_array().end_object();
  }
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace canzona

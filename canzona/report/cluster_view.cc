#include "canzona/report/cluster_view.h"

#include <fmt/format.h>

#include <string>
#include <vector>

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

}  // namespace canzona

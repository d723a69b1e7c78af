#include "canzona/report/cluster_view.h"

#include <fmt/format.h>

#include "canzona/base/text.h"
#include "canzona/plan/zero.h"
#include "canzona/report/page.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/sim/prediction_inputs.h"

namespace canzona::report {
namespace {

// "first stage", "stage 3", "last stage"; "all ranks" without a pipeline.
std::string kind_name(const Plan& plan, const IterationPrediction& kind) {
  if (plan.mesh.pp == 1) return "all ranks";
  if (kind.stage == 0) return "first stage";
  return kind.stage + 1 == plan.mesh.pp ? "last stage"
                                        : cat("stage ", kind.stage);
}

struct PartOfTime {
  const char* heading;  // in tables
  const char* key;      // in JSON
  double IterationTime::*seconds;
};

// The parts add up to the iteration.
constexpr PartOfTime kPartsOfTime[] = {
    {">compute", "compute_seconds", &IterationTime::compute_seconds},
    {">step", "step_seconds", &IterationTime::step_seconds},
    {">bubble", "bubble_seconds", &IterationTime::bubble_seconds},
    {">parameters", "waited_parameters_seconds",
     &IterationTime::waited_parameters},
    {">gradients", "waited_gradients_seconds",
     &IterationTime::waited_gradients},
    {">sums", "waited_step_seconds", &IterationTime::waited_step}};

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

Document cluster_of(const ShownCluster& shown) {
  const Cluster& cluster = shown.cluster;
  Listing levels;
  for (const LinkLevel& level : cluster.levels)
    levels.add(
        {{"name", "<level", level.name},
         {"ranks", ">ranks", as_count(level.ranks)},
         {"bytes_per_second", ">per rank", level.bytes_per_second,
          bandwidth_text(level.bytes_per_second)},
         {"latency_seconds", ">latency", as_seconds(level.latency_seconds)},
         {"oversubscription", ">oversubscribed", level.oversubscription,
          fmt::format("{:g}", level.oversubscription)}});
  Document out;
  out.title("Links").table("levels", levels).set("name", cluster.name);
  out.set("card", {{"name", cluster.card.name},
                   {"tflops", cluster.card.flops_per_second / 1e12},
                   {"cost", shown.plan.cost_basis.source}});
  out.set("spread", {{"compute", cluster.spread.compute},
                     {"length", cluster.spread.length}});
  return out.set("collectives", shown.collectives);
}

void add_kind(const ShownCluster& shown, const IterationPrediction& kind,
              Listing& kinds) {
  const IterationTime& time = kind.time;
  Row& row = kinds.add({{"kind", "<rank", kind_name(shown.plan, kind)},
                        {"seconds", ">iteration", as_seconds(time.seconds)}});
  for (const PartOfTime& part : kPartsOfTime)
    row.add({part.key, part.heading, as_seconds(time.*part.seconds)});
  row.add({"memory_bytes", ">memory",
           as_bytes(kind.memory_bytes + shown.activations)});
  row.add({"sent_inter_bytes", ">between", as_bytes(kind.slow_bytes)});
  row.set("sent_intra_bytes", kind.fast_bytes).set("stage", kind.stage);
  row.set("busy_seconds", time.busy_seconds);
  row.set("busy_intra_seconds", time.busy_intra_seconds);
  row.set("busy_inter_seconds", time.busy_inter_seconds);
  row.set("hidden_fraction", time.hidden_fraction());
}

Document prediction_of(const ShownCluster& shown) {
  const ClusterPrediction& p = shown.predicted;
  Listing kinds;
  for (const IterationPrediction& kind : p.kinds) add_kind(shown, kind, kinds);
  Document out;
  out.title(
         "Predicted time of one rank of each kind; the cost of links is the "
         "wait for parameters, gradients and sums")
      .table("kinds", kinds);
  out.text(cat("\n  ",
               toned(Tone::kBold, cat("iteration ", human_seconds(p.seconds()),
                                      ", including the step of ",
                                      human_seconds(p.step_seconds()))),
               " (predicted)\n"));
  out.text(fmt::format(
      "  {} tokens/s, {:.1f} Tflop/s per card, {} of its attainable rate; {} "
      "of communication hidden\n",
      human_count(p.tokens_per_second()), p.flops_per_card() / 1e12,
      percent(p.used_share()), percent(p.time().hidden_fraction())));
  out.set("iteration_seconds", p.seconds());
  out.set("step_seconds", p.step_seconds()).set("tokens", p.tokens);
  add_basis(describe_inputs(shown.plan, shown.work),
            known_gaps(shown.plan, shown.work), out);
  out.set("tokens_per_second", p.tokens_per_second());
  out.set("tflops_per_card", p.flops_per_card() / 1e12);
  out.set("used_share", p.used_share());
  out.set("hidden_fraction", p.time().hidden_fraction());
  out.set("slowest_card", p.slowest_card).set("longest_batch", p.longest_batch);
  out.set("memory_per_rank_max", p.memory_bytes() + shown.activations);
  return out.set("activation_bytes", shown.activations);
}

}  // namespace

Document cluster_view(const ShownCluster& shown) {
  const Plan& plan = shown.plan;
  const Workload& work = shown.work;
  const std::string iteration = work_line(shown), card = card_line(shown),
                    spread = spread_line(shown);
  const std::string zero =
      zero_name(plan.options.zero.sizes, plan.mesh.homes());
  Document out;
  out.heading(
      printable(shown.cluster.name),
      fmt::format(": {}, {} ({}) on {}, {}, {}", printable(plan.model.name),
                  plan.rule, plan.options.strategy, to_string(plan.mesh),
                  counted(plan.mesh.world(), "rank"), zero));
  out.set("report", "cluster").set("model", plan.model.name);
  out.set("mesh", mesh_value(plan.mesh)).set("world", plan.mesh.world());
  out.set("rule", plan.rule).set("strategy", plan.options.strategy);
  out.set("zero", zero);
  out.set("iteration", {{"micro_batches", work.num_micro_batches},
                        {"tokens", work.compute.tokens},
                        {"length", work.compute.length},
                        {"overlap", to_string(work.overlap)}});
  constexpr size_t kColumn = 14;
  out.labelled({"", "iteration", iteration}, kColumn);
  if (may_have_teams(plan))
    out.labelled({"teams", "teams", teams_value(plan), describe_teams(plan)},
                 kColumn);
  out.labelled({"", "card", card}, kColumn);
  out.labelled({"", "spread", spread}, kColumn);
  out.add("cluster", cluster_of(shown)).add("predicted", prediction_of(shown));
  return out.set("verdict",
                 cat(iteration, ". ", card, ". Spread: ", spread, "."));
}

std::string cluster_html(const ShownCluster& shown) {
  return make_page(to_json(cluster_view(shown), 0), {"bars.js", "cluster.js"});
}

}  // namespace canzona::report

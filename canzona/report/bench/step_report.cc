// The answer of `canzona bench step`.
#include "canzona/report/bench/step_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "canzona/base/text.h"
#include "canzona/report/models_view.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/team_view.h"
#include "canzona/report/zero_view.h"

namespace canzona::report::bench {
namespace {

constexpr size_t kBarWidth = 50;
constexpr size_t kDigestLetters = 12;

std::vector<const PlanBench*> ran(const StepReport& report) {
  std::vector<const PlanBench*> out;
  for (const PlanBench& one : report.bench.plans)
    if (one.error.empty()) out.push_back(&one);
  return out;
}

bool sizes_differ(const std::vector<PlanBench>& plans) {
  return std::ranges::any_of(plans, [&](const PlanBench& one) {
    return one.choice.sizes != plans.front().choice.sizes;
  });
}

bool overlaps_differ(const std::vector<PlanBench>& plans) {
  return std::ranges::any_of(plans, [&](const PlanBench& one) {
    return one.choice.overlap != plans.front().choice.overlap;
  });
}

bool strategies_differ(const std::vector<PlanBench>& plans) {
  return std::ranges::any_of(plans, [&](const PlanBench& one) {
    return one.choice.strategy != plans.front().choice.strategy;
  });
}

// Names a plan by what distinguishes it from the others: its strategy, sizes of
// ZeRO and overlap.
std::string label_of(const StepReport& report, const PlanBench& one) {
  const std::vector<PlanBench>& plans = report.bench.plans;
  std::vector<std::string> words;
  if (sizes_differ(plans))
    words.push_back(zero_name(one.choice.sizes, report.mesh.homes()));
  if (overlaps_differ(plans)) words.emplace_back(to_string(one.choice.overlap));
  if (words.empty() || strategies_differ(plans))
    words.insert(words.begin(), one.choice.strategy);
  return join(words, " ");
}

// Returns "after 2.1 s (device 0.4 s, plan 10 ms, …), 1.2 s"; the last figure
// is the step itself.
std::string beginning_text(const std::vector<Phase>& phases) {
  const double step = phases.back().seconds;
  std::string parts;
  for (size_t i = 0; i + 1 < phases.size(); ++i)
    parts += cat(i > 0 ? ", " : "", phases[i].name, " ",
                 human_seconds(phases[i].seconds));
  return cat("began after ", human_seconds(total_seconds(phases) - step), " (",
             parts, "), took ", human_seconds(step));
}

// ", the first not timed", ", the first 3 not timed"
std::string untimed_text(int warmup) {
  if (warmup == 0) return "";
  return cat(", the first ", warmup == 1 ? "" : cat(warmup, " "), "not timed");
}

// What all plans have in common and is not usual: "; zero3, overlap none".
std::string cuts_text(const StepReport& report) {
  const std::vector<PlanBench>& plans = report.bench.plans;
  if (plans.empty()) return "";
  const StepChoice& first = plans.front().choice;
  std::vector<std::string> words;
  if (!sizes_differ(plans) && first.sizes != ZeroSizes{})
    words.push_back(zero_name(first.sizes, report.mesh.homes()));
  if (!overlaps_differ(plans) && first.overlap != Overlap::kBackground)
    words.push_back(cat("overlap ", to_string(first.overlap)));
  if (report.trial.micro_batches > 1)
    words.push_back(counted(report.trial.micro_batches, "micro-batch"));
  return words.empty() ? "" : "; " + join(words, ", ");
}

const char* ranks_text(const std::string& transport) {
  return transport == "thread" ? "threads"
         : transport == "mpi"  ? "MPI processes"
         : transport == "nccl" ? "NCCL processes"
                               : "processes over sockets";
}

// The heading says how all plans were run, and what predictions rest on.
void add_heading(const StepReport& report, Document& out) {
  const StepBench& bench = report.bench;
  out.heading("Steps", cat(" of ", printable(report.model), " with ",
                           report.rule, " on ", to_string(report.mesh), ": ",
                           counted(report.mesh.world(), "rank"), ", ",
                           ranks_text(report.transport)));
  if (const std::string text = report.precision.text(); !text.empty())
    out.line("precision: " + text);
  out.line(cat(to_string(report.trial.gradients), " gradients, ",
               counted(report.trial.steps, "step"),
               untimed_text(report.trial.warmup), cuts_text(report)));
  const int64_t tokens = report.trial.product_tokens;
  out.line(cat("forward and backward ",
               tokens > 0
                   ? cat("are bf16 products of every module's matrices with ",
                         tokens, " tokens,")
                   : "sleep",
               " ", human_seconds(bench.compute_seconds),
               bench.measured_first.empty()
                   ? ""
                   : cat(" (measured first: ", bench.measured_first, ")")));
  if (!bench.beginning.empty())
    out.line("first step: " + beginning_text(bench.beginning));
  if (bench.link)
    out.line(cat(link_text(*bench.link), ", ",
                 counted_text(bench.link->ranks_per_node, "rank"),
                 " per node"));
  if (const auto plans = ran(report); !plans.empty())
    out.line("predictions: " +
             (bench.speed ? speed_text(*bench.speed)
                          : cost_source_text(plans.front()->plan->cost_basis)));
}

// Returns the time without overlap over the time with it; 0 if that was not
// run.
double against_none(const StepReport& report, const PlanBench& one) {
  if (one.choice.overlap == Overlap::kNone) return 0;
  for (const PlanBench* other : ran(report))
    if (other->choice.strategy == one.choice.strategy &&
        other->choice.sizes == one.choice.sizes &&
        other->choice.overlap == Overlap::kNone)
      return other->trial.iteration.median / one.trial.iteration.median;
  return 0;
}

Value value_if(bool is_known, double value) {
  return is_known ? Value(value) : Value(nullptr);
}

Cell percent_if(bool is_known, double part) {
  return {value_if(is_known, part),
          is_known ? fmt::format("{:.0f} %", 100 * part) : ""};
}

Cell times_if(bool is_known, double ratio) {
  return {value_if(is_known, ratio),
          is_known ? fmt::format("{:.2f}x", ratio) : ""};
}

// The plans that ran: a table of each subject for people, and all figures of a
// plan as one object.
struct PlanTables {
  Listing steps, iterations, sizes, memory;
};

// A row of a table, whose figures are members of the plan.
class PlanRow {
 public:
  PlanRow(Listing& table, const std::string& label, Document& plan)
      : row_(table.add({{"", "<plan", label}})), plan_(plan) {}
  void add(const char* key, const char* heading, Cell cell) {
    row_.add({"", heading, "", std::move(cell.text)});
    if (*key != 0) plan_.set(key, std::move(cell.value));
  }

 private:
  Row& row_;
  Document& plan_;
};

void add_step_times(const PlanBench& s, PlanRow row, Document& out) {
  const StepTrial& t = s.trial;
  row.add("step_seconds", ">step", as_seconds(t.step.median));
  row.add("step_seconds_mean", ">mean", as_seconds(t.step.mean));
  row.add("step_seconds_worst", ">worst", as_seconds(t.step.worst));
  row.add("predicted_step_seconds", ">predicted",
          as_seconds(s.predicted_mean()));
  row.add("step_and_gather_seconds", ">with gather",
          as_seconds(t.step_and_gather.median));
  row.add("speedup_over_replicated", ">speed-up",
          times_if(s.speedup_over_replicated > 0, s.speedup_over_replicated));
  out.set("step_compute_seconds", t.step_compute_seconds);
  out.set("host_seconds", t.host_seconds);
  out.set("step_hidden_fraction",
          value_if(t.knows_busy, t.step_links.hidden_fraction()));
  out.set("step_covered_fraction",
          value_if(t.knows_exposed, t.step_links.covered_fraction()));
  out.set("step_waited_seconds", t.step_links.waited);
  out.set("step_busy_seconds", value_if(t.knows_busy, t.step_links.busy));
  out.set("step_exposed_seconds",
          value_if(t.knows_exposed, t.step_links.exposed));
  out.set("predicted_step_seconds_worst", s.predicted_worst());
}

void add_iterations(const StepReport& report, const PlanBench& s, PlanRow row,
                    Document& out) {
  const StepTrial& t = s.trial;
  const double seconds = t.iteration.median;
  const bool is_run = seconds > 0;
  const double speed_up = is_run ? against_none(report, s) : 0;
  const auto seconds_if = [&](bool is_known, double value) {
    return Cell{value_if(is_known, value), human_seconds(value)};
  };
  row.add("iteration_seconds", ">iteration", seconds_if(is_run, seconds));
  row.add("iteration_seconds_spread", ">spread",
          seconds_if(is_run, t.iteration.spread));
  row.add("predicted_iteration_seconds", ">predicted",
          seconds_if(is_run, s.predicted_iteration_seconds));
  row.add("", ">none :", times_if(speed_up > 0, speed_up));
  row.add("compute_seconds", ">computes",
          seconds_if(is_run, t.compute_seconds));
  row.add("waited_seconds", ">waits", seconds_if(is_run, t.links.waited));
  row.add("hidden_fraction", ">hidden",
          percent_if(is_run && t.knows_busy, t.links.hidden_fraction()));
  row.add("covered_fraction", ">covered",
          percent_if(is_run && t.knows_exposed, t.links.covered_fraction()));
  out.set("iteration_seconds_mean", value_if(is_run, t.iteration.mean));
  out.set("iteration_seconds_worst", value_if(is_run, t.iteration.worst));
  out.set("predicted_hidden_fraction",
          value_if(is_run, s.predicted_hidden_fraction));
  out.set("links_busy_seconds", value_if(is_run && t.knows_busy, t.links.busy));
  out.set("links_exposed_seconds",
          value_if(is_run && t.knows_exposed, t.links.exposed));
  out.set("link_seconds", s.link_seconds);
}

void add_sizes(const PlanBench& s, PlanRow row) {
  row.add("bytes_sent_max", ">sent", as_bytes(s.trial.bytes_sent_max));
  row.add("bytes_predicted_max", ">predicted",
          as_bytes(s.bytes_predicted.most_sent()));
  row.add("slow_bytes_sent_max", ">to other nodes",
          as_bytes(s.trial.slow_bytes_sent_max));
  row.add("slow_bytes_predicted_max", ">predicted",
          as_bytes(s.bytes_predicted.most_slow()));
}

void add_memory(const PlanBench& s, PlanRow row, Document& out) {
  const StepTrial& t = s.trial;
  row.add("memory_bytes_max", ">memory", as_bytes(t.memory_bytes_max));
  row.add("memory_predicted_max", ">predicted",
          as_bytes(s.memory_predicted_max));
  row.add("", ">pools in use", as_bytes(t.pools.bytes));
  row.add("digest", "<parameters",
          {t.digest, t.digest.substr(0, kDigestLetters)});
  out.set("pool_high_water", {{"bytes", t.pools.bytes},
                              {"gather_slots", t.pools.gather_slots},
                              {"scatter_slots", t.pools.scatter_slots}});
}

void add_ranks(const PlanBench& s, Document& out) {
  std::vector<double> predicted;
  for (const RankCost& rank : s.predicted)
    predicted.push_back(rank.step_seconds_mean);
  out.set("rank_step_seconds", s.trial.rank_seconds);
  out.set("rank_predicted_seconds", predicted);
  out.set("rank_bytes_sent", s.trial.bytes_sent);
  out.set("rank_slow_bytes_sent", s.trial.slow_bytes_sent);
  out.set("rank_memory_bytes", s.trial.memory_bytes);
}

Value plan_value(const StepReport& report, const PlanBench& s,
                 PlanTables& tables) {
  Document out;
  out.set("name", s.choice.strategy);
  out.set("zero",
          sizes_value(with_states(s.choice.sizes, report.mesh.homes())));
  out.set("overlap", to_string(s.choice.overlap));
  if (!s.error.empty()) return out.set("error", s.error).value();
  const std::string label = label_of(report, s);
  add_step_times(s, {tables.steps, label, out}, out);
  add_iterations(report, s, {tables.iterations, label, out}, out);
  add_sizes(s, {tables.sizes, label, out});
  add_memory(s, {tables.memory, label, out}, out);
  add_ranks(s, out);
  out.set("state_digest", s.trial.state_digest);
  out.set("digest_seconds", s.trial.digest_seconds);
  out.set("collectives", to_string(s.plan->options.zero.reach));
  out.set("teams", teams_value(*s.plan)).set("plan_digest", s.plan->digest);
  if (report.audited)
    out.set("audit", audit_listing(*s.plan, audit(*s.plan)).value());
  return out.value();
}

void add_plans(const StepReport& report, Document& out) {
  PlanTables tables;
  std::vector<Value> plans;
  for (const PlanBench& s : report.bench.plans)
    plans.push_back(plan_value(report, s, tables));
  out.set("strategies", plans);
  if (ran(report).empty()) return;
  std::vector<std::string> hosts;
  for (const PlanBench* one : ran(report))
    hosts.push_back(cat(label_of(report, *one), " ",
                        human_seconds(one->trial.host_seconds)));
  out.title("Slowest rank: median step, mean and worst of a period")
      .table("", tables.steps)
      .line("time for a host to issue a step: " + join(hosts, ", "));
  if (report.trial.iterations > 0)
    out.title(
           "Iterations: slowest rank, median; mean rank: compute, and how much "
           "of the links' time it hides")
        .table("", tables.iterations);
  out.title("Largest rank: bytes of a step").table("", tables.sizes);
  out.title(
         "Largest rank: memory reserved, and the most that modules used of it; "
         "digest")
      .table("", tables.memory);
}

// Whole owners go without saying.
void add_sharing(const StepReport& report, Document& out) {
  Document lines;
  bool any = false;
  for (const PlanBench* s : ran(report)) {
    if (s->plan->options.teams == kTeamsOff) continue;
    lines.line(cat(label_of(report, *s), ": teams ", describe_teams(*s->plan)),
               4);
    any = true;
  }
  if (any) out.title("Matrices: who shares them").add(lines);
}

void add_bars(const StepReport& report, Document& out) {
  double least = 0, most = 0;
  for (const PlanBench* s : ran(report)) {
    const double mean = s->trial.step.mean;
    least = least > 0 ? std::min(least, mean) : mean;
    most = std::max(most, mean);
  }
  Listing rows;
  for (const PlanBench* s : ran(report)) {
    const double mean = s->trial.step.mean;
    rows.add(
        {{"", "<", label_of(report, *s)},
         {"", ">", as_seconds(mean)},
         {"", "<", "",
          toned(tone_of_ratio(mean / least), bar(mean, most, kBarWidth))}});
  }
  out.title("Mean step, slowest rank").table("", rows);
}

void add_verdict(const StepReport& report, Document& out) {
  const std::string wrong = report.disagreement();
  out.set("digests_agree", wrong.empty());
  if (ran(report).size() < 2) return;
  out.text(cat("\n",
               wrong.empty() ? toned(Tone::kGood,
                                     "plans that must have the same parameters "
                                     "and states do")
                             : toned(Tone::kPoor, wrong),
               "\n"));
}

void add_refusals(const StepReport& report, Document& out) {
  Refusals refused;
  for (const PlanBench& s : report.bench.plans)
    if (!s.error.empty()) refused.emplace_back(label_of(report, s), s.error);
  out.refusals("Not run", refused);
}

Value link_value(const StepReport& report) {
  const StepBench& bench = report.bench;
  if (!bench.link) return nullptr;
  Document out = link_members(*bench.link);
  out.set("copy_bytes_per_second", bench.copy_bytes_per_second);
  out.set("too_fast", is_too_fast(bench.link, bench.copy_bytes_per_second));
  out.set("comm_ratio", value_if(report.comm_ratio > 0, report.comm_ratio));
  return out.value();
}

// Takes the period from any plan that was made: all have the same.
void add_period(const StepBench& bench, Document& out) {
  const auto made = std::ranges::find_if(
      bench.plans, [](const PlanBench& s) { return s.plan.has_value(); });
  if (made == bench.plans.end()) return;
  const Plan& plan = *made->plan;
  out.set("period", plan.period).set("phases", plan.phases);
  out.set("covers_period", made->trial.step.covers_period);
  out.set("cost", bench.speed ? "this machine" : plan.cost_basis.source);
  if (!bench.speed) return;
  out.set("flops_per_second", bench.speed->flops_per_second);
  out.set("copy_bytes_per_second", bench.speed->copy_bytes_per_second);
}

void add_request(const StepReport& report, Document& out) {
  const StepBench& bench = report.bench;
  const StepTrialRequest& trial = report.trial;
  out.set("model", report.model).set("mesh", mesh_value(report.mesh));
  out.set("world", report.mesh.world()).set("rule", report.rule);
  out.add(precision_members(report.precision));
  out.set("transport", report.transport);
  out.set("gradients", to_string(trial.gradients)).set("steps", trial.steps);
  out.set("warmup", trial.warmup).set("iterations", trial.iterations);
  out.set("micro_batches", trial.micro_batches);
  Listing beginning;
  for (const Phase& phase : bench.beginning)
    beginning.add().set("phase", phase.name).set("seconds", phase.seconds);
  out.set("beginning", beginning.value());
  out.set("compute_seconds", bench.compute_seconds);
  out.set("product_tokens", trial.product_tokens > 0
                                ? Value(trial.product_tokens)
                                : Value(nullptr));
  out.set("measured_first", bench.measured_first);
  out.set("link", link_value(report)).set("warnings", warnings_of(report));
}

}  // namespace

std::vector<std::string> warnings_of(const StepReport& report) {
  std::vector<std::string> out;
  const StepBench& bench = report.bench;
  if (is_too_fast(bench.link, bench.copy_bytes_per_second))
    out.push_back(too_fast_text(bench.copy_bytes_per_second));
  const auto plans = ran(report);
  if (!plans.empty() && !plans.front()->trial.step.covers_period)
    out.push_back(fmt::format(
        "{} timed steps do not cover the {} of a refresh period: "
        "mean and worst are over the timed steps only",
        report.trial.steps - report.trial.warmup, plans.front()->plan->period));
  if (report.transport == "thread")
    warn_of_shared_cpus(report.mesh.world(), out);
  return out;
}

Document step_view(const StepReport& report) {
  Document out;
  add_request(report, out);
  add_period(report.bench, out);
  add_heading(report, out);
  add_plans(report, out);
  if (!ran(report).empty()) {
    add_sharing(report, out);
    add_bars(report, out);
  }
  add_verdict(report, out);
  add_refusals(report, out);
  return out;
}

}  // namespace canzona::report::bench

#include "canzona/report/compare_view.h"

#include <fmt/format.h>
#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/zero.h"
#include "canzona/report/page.h"
#include "canzona/report/plan_figures.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/report/terminal.h"
#include "canzona/report/zero_view.h"
#include "canzona/sim/zero_search.h"

namespace canzona {
namespace {

constexpr size_t kBarWidth = 50;
// The longest bar, as a multiple of the shortest: without a limit, a strategy
// that repeats all work on every rank would make the others look equal.
constexpr double kLongestBar = 4;

std::string toned(const Ink& ink, double ratio) {
  return ink(tone_of_ratio(ratio), ratio_text(ratio));
}

// Says what the memory figures include, and what they are compared with.
std::string terms_lines(const Comparison& comparison, const Ink& ink) {
  const ReportPlan& shown = *comparison.first();
  if (!shown.terms) return "";
  std::string out = ink(Tone::kDim, "  activations: ") +
                    wrap(describe_activations(*shown.terms, shown.plan.mesh),
                         kPageWidth - 15, 4) +
                    "\n" + ink(Tone::kDim, "  gradients: ") +
                    std::string(to_string(shown.terms->gradients)) +
                    " at rest\n";
  if (shown.terms->cap_bytes > 0)
    out += ink(Tone::kDim, "  memory cap: ") +
           human_bytes(shown.terms->cap_bytes) + " per rank\n";
  return out;
}

std::string heading(const Comparison& comparison, const Ink& ink) {
  const Plan& plan = comparison.first()->plan;
  return ink(Tone::kBold, "Strategies") +
         fmt::format(" for {} ({}), {} on {}: {}, {}\n",
                     printable(plan.model.name),
                     plan.model.fused ? "fused" : "separate", plan.rule,
                     to_string(plan.mesh), counted(plan.mesh.world(), "rank"),
                     counted(std::ssize(plan.matrices), "matrix")) +
         ink(Tone::kDim, "  cost: ") + cost_source_text(plan.cost_basis) +
         "\n" + ink(Tone::kDim, "  links: ") + links_text(plan.options) + "\n" +
         terms_lines(comparison, ink);
}

// Returns the memory of the plan under its terms.
Spread memory_of(const ReportPlan& shown) {
  return spread_over(shown.ranks, [](const RankCost& rank) {
    return rank.memory.total().value();
  });
}

std::string counted_table(const Comparison& comparison, const Ink& ink) {
  if (!comparison.first()->terms) return "";
  std::vector<std::string> head = {"strategy"};
  for (const MemoryKind& kind : memory_kinds(false)) head.push_back(kind.name);
  head.insert(head.end(), {"activations", "total"});
  Table table("<" + std::string(head.size() - 1, '>'));
  table.header(head);
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const RankMemory& memory = fullest_memory(strategy.shown->ranks);
    std::vector<std::string> cells = {strategy.name};
    for (const MemoryKind& kind : memory_kinds(false))
      cells.push_back(human_bytes((memory.*kind.field).value()));
    cells.push_back(human_bytes(strategy.shown->terms->activations));
    cells.push_back(human_bytes(memory.total().value() +
                                strategy.shown->terms->activations));
    table.row(cells);
  }
  return title(ink, "Memory of the fullest rank") + table.text(ink);
}

std::string balance_table(const Comparison& comparison, const Ink& ink) {
  Table table("<>>>>>>>");
  table.header({"strategy", "dp memory", "dp shard flops", "dp cost",
                "worst bucket", "tp memory", "tp shard flops", "tp cost"});
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const Balance& b = strategy.shown->balance;
    table.row({strategy.name, toned(ink, b.dp.memory_max_over_mean),
               toned(ink, b.dp.shard_flops_max_over_mean),
               toned(ink, b.dp.cost_max_over_mean),
               toned(ink, b.bucket_bytes_max_over_even),
               toned(ink, b.tp_worst.memory_max_over_mean),
               toned(ink, b.tp_worst.shard_flops_max_over_mean),
               toned(ink, b.tp_worst.cost_max_over_mean)});
  }
  return title(ink,
               "Balance: largest / mean over dp, and over tp in the worst "
               "home") +
         table.text(ink);
}

std::string cost_table_text(const Comparison& comparison, const Ink& ink) {
  Table table("<>>>>>>>");
  table.header({"strategy", "over bound", "idle", "sent", "memory",
                "mean memory", "predicted step", "planned in"});
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const PlanSummary& s = strategy.shown->plan.summary;
    const Balance& b = strategy.shown->balance;
    const Spread memory = memory_of(*strategy.shown);
    table.row({strategy.name, toned(ink, b.makespan_over_bound),
               grouped(b.idle_ranks), human_bytes(s.bytes_per_rank_max.value()),
               bytes_text(memory.max), bytes_text(memory.mean),
               human_seconds(s.step_seconds_mean),
               human_seconds(strategy.shown->plan_seconds)});
  }
  return title(ink,
               "Worst rank: makespan over the lower bound, bytes, memory "
               "without activations, time") +
         table.text(ink);
}

std::string teams_lines(const Comparison& comparison, const Ink& ink) {
  if (!may_have_teams(comparison.first()->plan)) return "";
  Table table("<>~");
  table.header({"strategy", "bound / mean", "teams"});
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (strategy.shown)
      table.row({strategy.name,
                 ratio_text(strategy.shown->balance.team_bound_over_mean),
                 describe_teams(strategy.shown->plan)});
  return title(ink, "Teams, and the lower bound with them") + table.text(ink);
}

struct Bar {
  std::string name;
  double value = 0;
  std::string text;
};

std::string bars_text(const std::vector<Bar>& bars, const Ink& ink) {
  double least = 0, most = 0;
  for (const Bar& b : bars) {
    least = least > 0 ? std::min(least, b.value) : b.value;
    most = std::max(most, b.value);
  }
  const double full = std::min(most, least * kLongestBar);
  Table table("<><");
  for (const Bar& b : bars) {
    const double ratio = least > 0 ? b.value / least : 1;
    table.row({b.name, b.text,
               ink(tone_of_ratio(ratio), bar(b.value, full, kBarWidth))});
  }
  return table.text(ink);
}

template <class Figure, class Show>
std::string bars_of(const Comparison& comparison, const Figure& figure,
                    const Show& show, const Ink& ink) {
  std::vector<Bar> bars;
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    const double value = figure(*strategy.shown);
    bars.push_back({strategy.name, value, show(value)});
  }
  return bars_text(bars, ink);
}

std::string pictures(const Comparison& comparison, const Ink& ink) {
  const auto transform = [](const ReportPlan& shown) {
    const Plan& plan = shown.plan;
    return static_cast<double>(plan.summary.makespan.value()) / plan.period *
           plan.cost_basis.seconds_per_tick;
  };
  const auto step = [](const ReportPlan& shown) {
    return shown.plan.summary.step_seconds_mean;
  };
  const auto memory = [](const ReportPlan& shown) {
    return memory_of(shown).max;
  };
  return title(ink, "Predicted transform, slowest rank (makespan)") +
         bars_of(comparison, transform, human_seconds, ink) +
         title(ink, "Predicted step with its exchange, slowest rank") +
         bars_of(comparison, step, human_seconds, ink) +
         title(ink, "Memory without activations, largest rank") +
         bars_of(comparison, memory, bytes_text, ink);
}

std::string refusals(const Comparison& comparison, const Ink& ink) {
  Refusals refused;
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (!strategy.shown) refused.emplace_back(strategy.name, strategy.error);
  return refusals_text(refused, "Strategies that cannot plan this", ink);
}

}  // namespace

const ReportPlan* Comparison::first() const {
  for (const ComparedStrategy& strategy : strategies)
    if (strategy.shown) return &*strategy.shown;
  return nullptr;
}

std::string compare_text(const Comparison& comparison, const Ink& ink) {
  if (comparison.first() == nullptr) return refusals(comparison, ink);
  return heading(comparison, ink) + balance_table(comparison, ink) +
         cost_table_text(comparison, ink) + teams_lines(comparison, ink) +
         counted_table(comparison, ink) + pictures(comparison, ink) +
         refusals(comparison, ink);
}

namespace {

void write_strategy(JsonWriter& out, const ComparedStrategy& strategy,
                    bool complete) {
  out.begin_object().field("name", strategy.name);
  if (!strategy.shown) {
    out.field("error", strategy.error).end_object();
    return;
  }
  const ReportPlan& shown = *strategy.shown;
  const PlanSummary& summary = shown.plan.summary;
  out.field("num_buckets", num_buckets(shown.plan));
  write_balance_members(out, shown.balance);
  if (may_have_teams(shown.plan))
    write_teams_by_size(out.member("teams"), shown.plan);
  out.field("bytes_per_rank_max", summary.bytes_per_rank_max.value());
  out.field("memory_per_rank_max", summary.memory_per_rank_max.value());
  out.field("memory_per_rank_mean", summary.memory_per_rank_mean);
  if (shown.terms) write_counted_memory(out.member("counted_memory"), shown);
  out.field("predicted_step_seconds", summary.step_seconds_mean);
  if (complete) out.field("plan_seconds", shown.plan_seconds);
  out.field("digest", shown.plan.digest);
  write_spread(out, shown);
  out.end_object();
}

// Returns the strategy of this name if it has a plan, else nullptr.
const ComparedStrategy* find_planned(const Comparison& comparison,
                                     std::string_view name) {
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (strategy.shown && strategy.name == name) return &strategy;
  return nullptr;
}

// Writes the two plans that are shown in detail.
void write_pair(JsonWriter& out, const Comparison& comparison) {
  const ComparedStrategy* before = find_planned(comparison, "start_offset");
  const ComparedStrategy* after = find_planned(comparison, "balanced");
  const bool no_after = after == nullptr;
  for (const ComparedStrategy& strategy : comparison.strategies) {
    if (!strategy.shown) continue;
    if (before == nullptr) before = &strategy;
    if (no_after) after = &strategy;
  }
  out.field("before", before->name).field("after", after->name);
  if (before != after)
    write_buckets(out.member("buckets_before"), *before->shown);
  write_plan_view(out.member("plan"), *after->shown, false);
}

// `balanced` joins a small tail bucket to its neighbour, so the number of
// buckets that describes the input is that of another strategy.
const ReportPlan& typical(const Comparison& comparison) {
  for (const ComparedStrategy& strategy : comparison.strategies)
    if (strategy.shown && strategy.name != "balanced") return *strategy.shown;
  return *comparison.first();
}

void write_comparison(JsonWriter& out, const Comparison& comparison,
                      bool complete) {
  out.begin_object().field("report", "compare");
  out.field("model", comparison.model).member("mesh");
  write_mesh(out, comparison.mesh);
  out.field("world", comparison.mesh.world());
  if (comparison.first() != nullptr) {
    const Plan& plan = typical(comparison).plan;
    out.field("num_matrices", plan.matrices.size());
    out.field("num_buckets", num_buckets(plan));
    out.field("rule", plan.rule).field("fused", plan.model.fused);
    out.field("cost_source", plan.cost_basis.source);
    out.field("nominal_links", plan.options.links.nominal);
  }
  out.member("strategies").begin_array();
  for (const ComparedStrategy& strategy : comparison.strategies)
    write_strategy(out, strategy, complete);
  out.end_array();
  if (comparison.first() != nullptr) write_pair(out, comparison);
  out.end_object();
}

}  // namespace

std::string compare_json(const Comparison& comparison) {
  JsonWriter out(2);
  write_comparison(out, comparison, true);
  return out.take() + "\n";
}

std::string compare_html(const Comparison& comparison) {
  if (comparison.first() == nullptr)
    throw UsageError("html report: there is no plan to show");
  JsonWriter out;
  write_comparison(out, comparison, false);
  return make_page(out.text(), {"tensors.js", "plan_drawings.js", "plan.js"});
}

namespace {

constexpr size_t kZeroBarWidth = 24;

std::string sizes_cell(const ZeroSizes& z) {
  return fmt::format("{},{},{}", z.z1, z.z2, z.z3);
}

// The first cells of a row: the sizes, and those of experts if any row has
// them.
std::vector<std::string> choice_cells(const ZeroComparison& all,
                                      const RankedZero& row) {
  const std::string first =
      sizes_cell(row.choice.sizes) +
      (!all.several_strategies ? "" : " " + printable(row.choice.strategy));
  if (!all.has_experts()) return {first};
  return {first,
          row.weight.experts.z1 > 0 ? sizes_cell(row.weight.experts) : "-"};
}

std::vector<std::string> choice_head(const ZeroComparison& all) {
  if (!all.has_experts()) return {"z1,z2,z3"};
  return {"z1,z2,z3", "experts"};
}

void append(std::vector<std::string>& cells,
            const std::vector<std::string>& more) {
  cells.insert(cells.end(), more.begin(), more.end());
}

std::string heading(const ZeroComparison& all, const Ink& ink) {
  std::string out =
      ink(Tone::kBold, "Hierarchical ZeRO") +
      fmt::format(" for {}, {} ({}) on {}: {}, {} per node, {} parameters\n",
                  printable(all.model), all.rule, all.strategy,
                  to_string(all.mesh), counted(all.mesh.world(), "rank"),
                  all.options.ranks_per_node,
                  to_string(all.options.parameters));
  const auto line = [&](const char* name, const std::string& text) {
    out += "  " + ink(Tone::kDim, name) + " " + wrap(text, kPageWidth - 14, 4) +
           "\n";
  };
  line("iteration:", work_text(all));
  line("times:", rates_text(all));
  if (all.options.memory_cap_bytes > 0)
    line("memory cap:",
         human_bytes(all.options.memory_cap_bytes) + " per rank");
  if (all.terms) {
    line("activations:", describe_activations(*all.terms, all.mesh));
    line("gradients:",
         std::string(to_string(all.terms->gradients)) + " at rest");
  }
  return out;
}

std::string ranking_table(const ZeroComparison& all, const Ink& ink) {
  std::vector<std::string> head = choice_head(all);
  Table table(std::string(head.size(), '<') + ">>>>~");
  append(head, {"memory", "in nodes", "between", "iteration", "why"});
  table.header(head);
  bool first = true;
  for (const RankedZero& row : all.search.ranking) {
    std::vector<std::string> cells = choice_cells(all, row);
    if (!row.is_planned()) {
      append(cells,
             {"-", "-", "-", "-", printable(brief_reason(row, all.search))});
      table.row(cells);
      continue;
    }
    const Tone tone = !row.fits() ? Tone::kPoor
                      : first     ? Tone::kGood
                                  : Tone::kPlain;
    cells[0] = ink(tone, cells[0]);
    append(
        cells,
        {human_bytes(all.total(row)), human_bytes(row.weight.fast_bytes),
         human_bytes(row.weight.slow_bytes), human_seconds(row.weight.seconds),
         printable(brief_reason(row, all.search))});
    table.row(cells);
    first = false;
  }
  return title(ink,
               "Ranking: memory of the fullest rank, bytes sent inside nodes "
               "and between them, predicted time") +
         table.text(ink);
}

// Returns the kinds of memory that any choice uses.
std::vector<std::string> kind_names(const ZeroComparison& all) {
  std::vector<std::string> names;
  for (const ZeroMemory& kind : memory_of(all, {})) {
    const bool used =
        std::ranges::any_of(all.search.ranking, [&](const RankedZero& row) {
          return std::ranges::any_of(
              memory_of(all, row), [&](const ZeroMemory& own) {
                return own.name == kind.name && own.bytes > 0;
              });
        });
    if (used) names.push_back(kind.name);
  }
  return names;
}

// Returns a bar, or a number where the sizes of experts leave no room for one.
std::string share_text(const ZeroComparison& all, const RankedZero& row,
                       int64_t most, size_t kinds) {
  const auto total = static_cast<double>(all.total(row));
  const auto whole = static_cast<double>(std::max<int64_t>(most, 1));
  if (all.has_experts()) return fmt::format("{:.0f} %", 100 * total / whole);
  return bar(total, whole, kinds > 5 ? kZeroBarWidth / 2 : kZeroBarWidth);
}

std::string memory_table(const ZeroComparison& all, const Ink& ink) {
  const std::vector<std::string> kinds = kind_names(all);
  int64_t most = all.options.memory_cap_bytes;
  for (const RankedZero& row : all.search.ranking)
    if (most == 0 || all.options.memory_cap_bytes == 0)
      most = std::max(most, all.total(row));
  Table table("<" + std::string(kinds.size() + 1, '>') + "<");
  std::vector<std::string> head = {all.has_experts() ? "dense/experts"
                                                     : "z1,z2,z3"};
  append(head, kinds);
  append(head, {"all", all.options.memory_cap_bytes == 0 ? ""
                       : all.has_experts()               ? "of cap"
                                                         : "of the cap"});
  table.header(head);
  for (const RankedZero& row : all.search.ranking) {
    if (!row.is_planned()) continue;
    std::vector<std::string> cells = {join(choice_cells(all, row), "/")};
    for (const ZeroMemory& kind : memory_of(all, row))
      if (std::ranges::find(kinds, kind.name) != kinds.end())
        cells.push_back(human_bytes(kind.bytes));
    cells.push_back(human_bytes(all.total(row)));
    cells.push_back(ink(row.fits() ? Tone::kGood : Tone::kPoor,
                        share_text(all, row, most, kinds.size())));
    table.row(cells);
  }
  return title(ink, "Memory of the fullest rank") + table.text(ink);
}

std::string notes(const ZeroComparison& all) {
  const auto count = [&](auto holds) {
    return std::ranges::count_if(all.search.ranking, holds);
  };
  std::string out;
  const auto crossing = count([](const RankedZero& row) {
    return row.weight.z2_crosses_nodes || row.weight.z3_crosses_nodes;
  });
  if (crossing > 0)
    out += fmt::format(
        "  {} of {} have groups of gradients or parameters "
        "that cross nodes\n",
        crossing, all.search.ranking.size());
  if (count([](const RankedZero& row) { return row.weight.replicas > 1; }) > 0)
    out += fmt::format(
        "  with z1 below {}, states are stored and the step is computed {}/z1 "
        "times\n",
        all.mesh.homes(), all.mesh.homes());
  const int32_t homes = all.mesh.expert_homes();
  if (count([&](const RankedZero& row) {
        return row.weight.experts.z1 > 0 && row.weight.experts.z1 < homes;
      }) > 0)
    out += fmt::format(
        "  with z1 of experts below {}, theirs are stored and computed {}/z1 "
        "times\n",
        homes, homes);
  return out;
}

std::string verdict_line(const ZeroComparison& all, const Ink& ink) {
  return "\n  " +
         ink(all.search.is_found() ? Tone::kGood : Tone::kPoor,
             wrap(all.search.summary(), kPageWidth - 2, 2)) +
         "\n";
}

void write_row(JsonWriter& out, const ZeroComparison& all,
               const RankedZero& row) {
  out.begin_object().field("name",
                           zero_name(row.choice.sizes, all.mesh.homes()));
  write_sizes(out.member("zero"), row.choice.sizes);
  if (row.weight.experts.z1 > 0) {
    out.field("name_of_experts",
              zero_name(row.weight.experts, all.mesh.expert_homes()));
    write_sizes(out.member("experts"), row.weight.experts);
  }
  if (all.several_strategies) out.field("strategy", row.choice.strategy);
  out.field("fits", row.fits()).field("reason", brief_reason(row, all.search));
  if (!row.is_planned()) {
    out.end_object();
    return;
  }
  out.field("memory_bytes", all.total(row)).member("memory").begin_object();
  for (const ZeroMemory& kind : memory_of(all, row))
    out.field(kind.name, kind.bytes);
  out.end_object();
  out.field("fast_bytes", row.weight.fast_bytes)
      .field("slow_bytes", row.weight.slow_bytes);
  out.field("predicted_iteration_seconds", row.weight.seconds);
  out.field("predicted_step_seconds", row.weight.step_seconds);
  out.field("replicas", row.weight.replicas);
  out.field("z2_crosses_nodes", row.weight.z2_crosses_nodes);
  out.field("z3_crosses_nodes", row.weight.z3_crosses_nodes).end_object();
}

}  // namespace

std::string work_text(const ZeroComparison& all) {
  const Workload& work = all.work;
  return cat(
      work.num_micro_batches,
      work.num_micro_batches == 1 ? " micro-batch of " : " micro-batches of ",
      work.compute.tokens, " tokens per data-parallel rank, ",
      to_string(work.overlap), work.compute.recompute ? ", recomputed" : "");
}

std::string rates_text(const ZeroComparison& all) {
  if (!all.rates.empty()) return all.rates;
  return cat(flops_text(all.work.compute.flops_per_second),
             "/s in forward and backward; ", links_text(all.options));
}

std::vector<ZeroMemory> memory_of(const ZeroComparison& all,
                                  const RankedZero& row) {
  std::vector<ZeroMemory> kinds;
  for (const MemoryKind& kind : memory_kinds(true))
    kinds.push_back({kind.name, (row.weight.memory.*kind.field).value()});
  kinds.push_back({"activations", all.beside_bytes});
  return kinds;
}

std::string zero_ranking_text(const ZeroComparison& all, const Ink& ink) {
  return heading(all, ink) + ranking_table(all, ink) + verdict_line(all, ink);
}

std::string zero_comparison_text(const ZeroComparison& all, const Ink& ink) {
  return heading(all, ink) + ranking_table(all, ink) + memory_table(all, ink) +
         notes(all) + verdict_line(all, ink);
}

void write_zero_comparison(JsonWriter& out, const ZeroComparison& all) {
  out.begin_object().field("report", "zero");
  out.field("model", all.model).member("mesh");
  write_mesh(out, all.mesh);
  out.field("world", all.mesh.world()).field("rule", all.rule);
  out.field("strategy", all.strategy)
      .field("parameters", to_string(all.options.parameters));
  out.field("ranks_per_node", all.options.ranks_per_node);
  out.field("expert_homes", all.mesh.expert_homes());
  out.field("memory_cap_bytes", all.options.memory_cap_bytes);
  if (all.terms) {
    out.field("gradients", to_string(all.terms->gradients));
    write_activations(out.member("activations"), *all.terms);
  }
  out.field("work", work_text(all)).field("rates", rates_text(all));
  out.field("verdict", all.search.summary()).member("choice");
  if (all.search.is_found())
    write_sizes(out, all.search.ranking.front().choice.sizes);
  else
    out.null();
  if (all.search.is_found() && all.search.ranking.front().weight.experts.z1 > 0)
    write_sizes(out.member("choice_of_experts"),
                all.search.ranking.front().weight.experts);
  out.member("sizes").begin_array();
  for (const RankedZero& row : all.search.ranking) write_row(out, all, row);
  out.end_array().end_object();
}

std::string zero_comparison_json(const ZeroComparison& all) {
  JsonWriter out(2);
  write_zero_comparison(out, all);
  return out.take() + "\n";
}

std::string zero_comparison_html(const ZeroComparison& all) {
  JsonWriter out;
  write_zero_comparison(out, all);
  return make_page(out.text(), {"bars.js", "zero.js"});
}

}  // namespace canzona

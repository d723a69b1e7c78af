// `canzona plan` and `canzona compare`.
#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/json/plan_json.h"
#include "canzona/plan/layout/layout.h"
#include "canzona/report/compare_view.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/team_view.h"
#include "canzona/report/zero_view.h"
#include "canzona/sim/zero_ranking.h"
#include "cli/all_cores.h"
#include "cli/plan_input.h"
#include "cli/plan_mesh.h"
#include "cli/plan_storage.h"
#include "cli/stated_cluster.h"
#include "cli/verbs.h"
#include "cli/with_flags.h"

namespace canzona::cli {

// `canzona plan`: makes a validated plan from a model's shapes.
namespace {

constexpr const char* kPlanExamples =
    R"(Examples:
  canzona plan --model qwen3-32b --fused --mesh dp=32,tp=8 --rule muon
  canzona plan --model ./config.json --mesh dp=16,tp=4,pp=2 --rule soap --phases 5 -o plan.json
  canzona plan --model model.safetensors.index.json --mesh dp=8 --adamw '*.k_proj.*' --json
  canzona plan --model qwen3-32b --fused --mesh dp=32,tp=8 --teams auto
  canzona plan --model qwen3-8b --mesh dp=16 --zero hier:8
  canzona plan --model qwen3-30b-a3b --mesh dp=8,ep=8 --zero hier:8 --zero-experts zero3
  canzona plan --model qwen3-8b --mesh dp=16 --zero auto --memory-cap 40GB -o plan.json
  canzona plan --model qwen3-30b-a3b --ranks 64 --gpu h200 --mesh auto --length 4096
  canzona plan --model qwen3-32b --layout fsdp2 --mesh dp=64,tp=8 --html plan.html
  canzona plan --model qwen3-8b --layout hsdp:8 --mesh dp=32 --rule soap --dtype bf16
  canzona plan --model qwen3-8b --mesh dp=64 --zero auto --gpu h100-80
  canzona plan --storage storage.json -o plan.json --html plan.html

With --mesh auto, the mesh is searched for, with sizes of ZeRO, micro-batches and recomputation: the
fastest of all that fit (predicted), the best of each kind, and commands that run it.

With --teams, ranks of a home may share a matrix: its long side is cut into strips, divided evenly
among 2, 4 or 8 ranks; one of them, the head, does the work that cannot be shared. For 32B on 256
ranks, the busiest rank does 1.77 × the mean work with whole owners, 1.05 × with teams. If a
rule keeps two factors of a matrix (SOAP, Shampoo), a helper decomposes one of them in refreshes.
No bit of the result depends on teams.

With --layout, the plan is the one that the PyTorch package makes for this model under DDP, FSDP2 or
HSDP (hsdp:8: groups of 8 ranks share a copy), over tensor parallelism if the mesh has tp. PyTorch
is not needed. Tensors and rules are those of canzona.Muon(model), SOAP and so on.

With --storage, the planner cuts nothing: ranks store what the file says, as DDP, FSDP2, HSDP or TP
left it; only owners and rounds are chosen. Two ranks with half of a matrix each:
  {"canzona_storage": 1, "world": 2, "groups": [{"rule": "muon"}],
   "tensors": [{"name": "w", "shape": [4, 8], "group": 0,
                "stored": [[[[0, 0], [2, 8]]], [[[2, 0], [2, 8]]]]}]}
)";

// With `--zero auto`: the strategy of the best plan.
constexpr const char* kAnyStrategy = "any";

// Progress is shown under this name.
constexpr const char* kWeighing = "planning and predicting sizes of ZeRO";

// The report compares the plan with this strategy.
constexpr const char* kBaseline = "start_offset";

std::string help_footer() {
  return kPlanExamples + std::string("\n") + strategies_help() + "\n" +
         rules_help() + "\n" + gpus_help();
}

// Shows the plan, preceded by the baseline if that can plan this input at all.
std::string report_of(const PlanInput& input, const ReportPlan& shown) {
  Comparison both{input.model.name, input.mesh, {}};
  if (shown.plan.options.strategy != kBaseline) {
    try {
      both.strategies.push_back({kBaseline, plan_once(input, kBaseline), ""});
    } catch (const UsageError&) {
      // There is no baseline, so the report shows the plan alone.
    } catch (const ViolationsFound&) {
      // Likewise: the baseline may not be able to keep the budgets.
    }
  }
  if (both.strategies.empty()) return plan_html(shown);
  both.strategies.push_back({shown.plan.options.strategy, shown, ""});
  return compare_html(both);
}

// Reads what plans are judged by.
void read_judgement(const PlanArguments& arguments, PlanInput& input) {
  input.work = read_workload(arguments, input.model, input.mesh);
  input.terms =
      read_memory_terms(arguments, input.model, input.mesh, input.options);
}

void choose_zero(const PlanArguments& arguments, PlanInput& input,
                 const Output& out) {
  const std::string& sizes = arguments.planner["zero"];
  const std::string& experts = arguments.planner["zero-experts"];
  SearchedSizes searched{.dense = sizes == "auto",
                         .experts = experts == "auto"};
  const bool any = arguments.planner["strategy"] == kAnyStrategy;
  if (any) searched.strategies = known_strategies("all", "--strategy");
  if (any && !searched) throw UsageError("--strategy any requires --zero auto");
  ZeroOptions& zero = input.options.zero;
  if (!searched.dense && !sizes.empty())
    zero.sizes = parse_zero(sizes, input.mesh.homes(), "--zero", "auto");
  if (!searched.experts && !experts.empty())
    zero.experts = parse_zero(experts, input.mesh.expert_homes(),
                              "--zero-experts", "auto");
  if (!searched) return;
  const ZeroRanking all =
      search_sizes(input.request(), *input.work, searched, nullptr,
                   &*input.terms, on_all_cores("", out));
  take_best(all, input.options);
  out.note("zero: " + summary_of(all));
}

// Warns if collectives wait for one home (layout/layout.h).
void note_uneven(const ReportPlan& shown, const Output& out) {
  const double ratio = shown.balance.bucket_bytes_max_over_even;
  if (ratio <= kUnevenBucket) return;
  out.note(
      cat("warning: uneven buckets: of one bucket a data-parallel rank "
          "has ",
          ratio_text(ratio),
          " × its even share, and sums of gradients and new parameters "
          "wait for it; try larger --bucket-elements, --zero hier:",
          shown.plan.options.ranks_per_node, " or a larger tp"));
}

// Reports what `--teams auto` chose.
void note_teams(const Plan& plan, const Output& out) {
  if (plan.options.teams == kTeamsAuto)
    out.note("teams: " + describe_teams(plan));
}

// Reports what `--collectives auto` chose.
void note_collectives(const PlanArguments& arguments, const Plan& plan,
                      const Output& out) {
  if (arguments.planner["collectives"] == to_string(Reach::kAuto))
    out.note("collectives: " + collectives_text(plan));
}

Outcome run(const PlanArguments& arguments, const Output& out) {
  if (arguments.mesh == kAutoMesh) return plan_mesh(arguments, out);
  refuse_mesh_options(arguments);
  if (!arguments.storage.empty()) return plan_storage(arguments, out);
  if (!arguments.layout.empty()) return plan_layout(arguments, out);
  refuse_layout_options(arguments);
  PlanInput input = read_plan_input(arguments);
  if (!input.note.empty()) out.note(input.note);
  const std::string& strategy = arguments.planner.or_usual("strategy");
  if (strategy != kAnyStrategy)
    input.options.strategy =
        known_strategy(strategy, "--strategy", kAnyStrategy);
  read_judgement(arguments, input);
  choose_zero(arguments, input, out);
  // Many matrices on many ranks take seconds.
  if (out.shows_progress())
    out.progress(cat("planning for ", counted(input.mesh.world(), "rank")));
  const ReportPlan shown =
      plan_once(input, input.options.strategy,
                arguments.html.empty() ? &input.model : nullptr);
  if (out.shows_progress()) out.progress("");
  note_collectives(arguments, shown.plan, out);
  note_teams(shown.plan, out);
  note_uneven(shown, out);
  // Files come first, because the reader of the text may stop early.
  if (!arguments.output.empty())
    out.save(arguments.output, plan_to_json(shown.plan), "plan");
  if (!arguments.html.empty())
    out.save(arguments.html, report_of(input, shown), "report");
  out.result(plan_view(shown), arguments.json);
  out.note(cat("planned and validated in ", human_seconds(shown.plan_seconds)));
  return Outcome::kDone;
}

}  // namespace

Verb add_plan(CLI::App& root) {
  return add_planning_verb(
      root, Planning::kOne,
      {.name = "plan",
       .description =
           "decide which rank computes which matrix, and show the cost",
       .footer = help_footer()},
      run);
}

// `canzona compare`: all strategies on the same input, side by side.
namespace {

constexpr const char* kCompareExamples =
    R"(Examples:
  canzona compare --model qwen3-32b --fused --mesh dp=32,tp=8 --rule muon
  canzona compare --model qwen3-8b --mesh dp=8,tp=4 --strategies contiguous,balanced --alpha 1
  canzona compare --model qwen3-14b --mesh dp=32,tp=4 --rule shampoo --html compare.html
  canzona compare --model qwen3-8b --mesh dp=16 --zero all --memory-cap 40GB --html zero.html
  canzona compare --model llama-3-70b --ranks 64 --gpu h100-80 --meshes --html meshes.html
  canzona compare --model qwen3-8b --mesh dp=16 --zero 'zero1,zero3,hier:8;z1=16,z2=2,z3=8'
)";

// A strategy that cannot meet a request is part of the answer, and so is one
// that exceeds a memory cap, which only `balanced` tries to keep. A plan that
// is not valid is not.
struct Attempt {
  ComparedStrategy strategy;
  int64_t over_cap = 0;  // bytes that the fullest rank lacks; 0: none
};

Attempt attempt(const PlanArguments& arguments, const PlanInput& input,
                const std::string& name) {
  try {
    return {{name, plan_once(input, name), ""}};
  } catch (const CapExceeded& found) {
    return {{name, std::nullopt, join(found.violations(), "; ")},
            found.lacks_bytes()};
  } catch (const UsageError& error) {
    return {{name, std::nullopt, with_flags(*arguments.app, error.what())}};
  }
}

// Says what the strategy that is closest to the cap lacks, and what to do.
[[noreturn]] void refuse_all_over_cap(const std::vector<Attempt>& attempts,
                                      const MemoryTerms& terms) {
  const Attempt& nearest = *std::ranges::min_element(
      attempts, {}, [](const Attempt& one) { return one.over_cap; });
  throw UsageError(
      cat("--memory-cap ", human_bytes(terms.cap_bytes),
          ": no strategy fits; the nearest is ", nearest.strategy.name,
          ", which needs ", human_bytes(nearest.over_cap), " more\n",
          nearest.strategy.error, "\n", memory_cures(terms, "all")));
}

void require_any(const std::vector<Attempt>& attempts,
                 const MemoryTerms& terms) {
  if (std::ranges::any_of(attempts, [](const Attempt& one) {
        return one.strategy.shown.has_value();
      }))
    return;
  if (std::ranges::all_of(attempts,
                          [](const Attempt& one) { return one.over_cap > 0; }))
    refuse_all_over_cap(attempts, terms);
  const std::string& common = attempts.front().strategy.error;
  bool all_alike = true;
  std::string message = "no strategy can plan this input";
  for (const Attempt& one : attempts) {
    all_alike = all_alike && one.strategy.error == common;
    message += cat("\n", one.strategy.name, ": ", one.strategy.error);
  }
  throw UsageError(all_alike ? common : message);
}

std::vector<std::string> strategies_of(const PlanArguments& arguments) {
  if (arguments.planner["strategy"].empty()) return {"balanced"};
  return known_strategies(arguments.planner["strategy"], "--strategies");
}

// Compares ZeRO sizes instead of strategies.
Outcome compare_zero(const PlanArguments& arguments, const Output& out) {
  PlanInput input = read_plan_input(arguments);
  if (!input.note.empty()) out.note(input.note);
  const std::vector<std::string> strategies = strategies_of(arguments);
  input.options.strategy = strategies.front();
  const std::vector<ZeroSizes> sizes =
      read_sizes(arguments.planner["zero"], input.mesh.homes());
  std::vector<ZeroSizes> experts;
  if (!arguments.planner["zero-experts"].empty())
    experts = read_sizes(arguments.planner["zero-experts"],
                         input.mesh.expert_homes(), "--zero-experts");
  read_judgement(arguments, input);
  const ZeroRanking all =
      rank_sizes(input.request(), *input.work, {sizes, experts, strategies},
                 &*input.terms, on_all_cores(kWeighing, out));
  if (input.options.zero.reach == Reach::kAuto)
    out.note("collectives: auto, decided for each size");
  if (!arguments.html.empty())
    out.save(arguments.html, zero_comparison_html(all), "report");
  out.result(zero_comparison_view(all), arguments.json);
  if (!all.answer.is_found()) throw UsageError(all.answer.summary());
  return Outcome::kDone;
}

Outcome run_compare(const PlanArguments& arguments, const Output& out) {
  if (arguments.meshes) return compare_meshes(arguments, out);
  refuse_mesh_options(arguments);
  if (!arguments.planner["zero"].empty()) return compare_zero(arguments, out);
  if (!arguments.planner["zero-experts"].empty())
    throw UsageError("--zero-experts requires --zero");
  const std::vector<std::string> names =
      known_strategies(arguments.planner["strategy"], "--strategies");
  PlanInput input = read_plan_input(arguments);
  if (!input.note.empty()) out.note(input.note);
  read_judgement(arguments, input);
  std::vector<Attempt> attempts;
  for (const std::string& name : names) {
    if (out.shows_progress()) out.progress(cat("planning: ", name));
    attempts.push_back(attempt(arguments, input, name));
  }
  if (out.shows_progress()) out.progress("");
  require_any(attempts, *input.terms);
  Comparison comparison{input.model.name, input.mesh, {}};
  for (Attempt& one : attempts)
    comparison.strategies.push_back(std::move(one.strategy));
  note_collectives(arguments, comparison.first()->plan, out);
  if (!arguments.html.empty())
    out.save(arguments.html, compare_html(comparison), "report");
  out.result(compare_view(comparison), arguments.json);
  return Outcome::kDone;
}

}  // namespace

Verb add_compare(CLI::App& root) {
  return add_planning_verb(
      root, Planning::kAll,
      {.name = "compare",
       .description = "plan with every strategy and show them side by side",
       .footer = cat(kCompareExamples, "\n", strategies_help(), "\n",
                     rules_help(), "\n", gpus_help())},
      run_compare);
}

}  // namespace canzona::cli

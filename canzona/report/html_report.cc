#include "canzona/report/html_report.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/html.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/numbers.h"
#include "canzona/report/places.h"
#include "canzona/report/plan_view.h"
#include "canzona/report/zero_view.h"

namespace canzona {
namespace {

size_t plan_of_strategy(const std::vector<ReportPlan>& plans,
                        std::string_view strategy, size_t otherwise) {
  for (size_t i = 0; i < plans.size(); ++i)
    if (plans[i].plan.options.strategy == strategy) return i;
  return otherwise;
}

}  // namespace

PageView::PageView(const std::vector<ReportPlan>& shown) : plans(shown) {
  if (shown.empty()) throw UsageError("html report: there is no plan to show");
  before = plan_of_strategy(shown, "start_offset", 0);
  after = plan_of_strategy(shown, "balanced", shown.size() - 1);
}

std::vector<const ReportPlan*> PageView::pair() const {
  if (two()) return {&old_plan(), &plan()};
  return {&plan()};
}

std::vector<double> rank_loads(const ReportPlan& shown, double unit) {
  std::vector<double> loads = period_loads(shown.plan, shown.ranks);
  for (double& load : loads) load = unit > 0 ? load / unit : 0;
  return loads;
}

double mean_load(const ReportPlan& shown) { return shown.plan.summary.mean; }

std::string rank_title(const Mesh& mesh, int32_t rank) {
  const Coordinates at = coordinates_of(mesh, rank);
  std::string text = cat("rank ", rank, " (");
  if (mesh.pp > 1) text += cat("stage ", at.stage, ", ");
  return text + cat("home ", at.home, ", t ", at.t, ")");
}

int32_t home_of(const PlanPart& plan, int32_t tensor) {
  const int32_t home = plan.home[static_cast<size_t>(tensor)];
  if (home == kEveryHome) return kEveryHome;
  return plan.stage_home(plan.buffer_of(tensor), home);
}

int32_t stage_of_bucket(const PlanPart& plan, const Bucket& bucket) {
  return plan.buffers[static_cast<size_t>(bucket.buffer)].stage;
}

double mean_cost(const SettledRequest& plan, size_t matrix) {
  return period_load(plan, plan.costs[matrix]) / plan.period;
}

std::string ticks_text(const SettledRequest& plan, double ticks) {
  if (!(plan.cost_basis.seconds_per_tick > 0))
    return human_count(ticks) + " ticks";
  return human_seconds(ticks * plan.cost_basis.seconds_per_tick);
}

std::string rate_text(const SettledRequest& plan) {
  if (is_nominal(plan.cost_basis)) return "nominal rate, no cost table";
  return "measured on " + plan.cost_basis.source;
}

int64_t parameter_bytes(const SettledRequest& plan) {
  return plan.options.parameters == ParameterDtype::kFp32 ? kBytesPerFp32
                                                          : kBytesPerBf16;
}

// The head of the page has what a reader must know in one look, and what was
// asked.
namespace {

void put_makespan_tile(Html& out, const PageView& view) {
  const Balance& now = view.plan().balance;
  if (view.plan().plan.matrices.empty()) {
    put_tile(out, "Makespan", "–", "", {"no matrices: nothing to balance"});
    return;
  }
  std::vector<std::string> notes{ratio_text(now.makespan_over_mean) +
                                 " × the mean load"};
  if (view.two()) {
    notes.push_back(
        cat("before: ", ratio_text(view.old_plan().balance.makespan_over_bound),
            " × the bound"));
  }
  put_tile(out, "Makespan", ratio_text(now.makespan_over_bound),
           "× the lower bound", notes);
}

void put_idle_tile(Html& out, const PageView& view) {
  const ReportPlan& shown = view.plan();
  std::vector<std::string> notes{"own no matrix"};
  if (view.two()) {
    notes.push_back(
        cat("before: ", grouped(view.old_plan().balance.idle_ranks)));
  }
  put_tile(out, "Idle ranks", grouped(shown.balance.idle_ranks),
           cat("of ", grouped(shown.plan.mesh.world())), notes);
}

void put_memory_tile(Html& out, const PageView& view) {
  const Plan& plan = view.plan().plan;
  std::vector<std::string> notes{
      cat("mean ", bytes_text(plan.summary.memory_per_rank_mean))};
  if (plan.options.memory_cap_bytes > 0)
    notes.push_back(cat("cap ", human_bytes(plan.options.memory_cap_bytes)));
  if (const auto& terms = view.plan().terms; terms && terms->activations > 0)
    notes.push_back(
        cat("beside it ", human_bytes(terms->activations), " of activations"));
  put_tile(out, "Memory per rank",
           human_bytes(plan.summary.memory_per_rank_max.value()), "at most",
           notes);
}

void put_bytes_tile(Html& out, const PageView& view) {
  const Plan& plan = view.plan().plan;
  std::vector<std::string> notes{"sent by the busiest rank in a step"};
  if (view.two()) {
    const Plan& old = view.old_plan().plan;
    notes.push_back(
        cat("before: ", human_bytes(old.summary.bytes_per_rank_max.value())));
  }
  put_tile(out, "Bytes per rank",
           human_bytes(plan.summary.bytes_per_rank_max.value()), "", notes);
}

void put_step_tile(Html& out, const PageView& view) {
  const Plan& plan = view.plan().plan;
  const PlanSummary& summary = plan.summary;
  std::vector<std::string> notes{rate_text(plan)};
  if (plan.options.links.nominal) notes.push_back("nominal links");
  if (summary.step_seconds_worst > summary.step_seconds_mean)
    notes.push_back("worst step " + human_seconds(summary.step_seconds_worst));
  if (view.two()) {
    notes.push_back(
        cat("before: ",
            human_seconds(view.old_plan().plan.summary.step_seconds_mean)));
  }
  put_tile(out, "Predicted step", human_seconds(summary.step_seconds_mean), "",
           notes);
}

// Says how near the plan is to the best possible one.
std::string bound_text(const Balance& balance) {
  const double ratio = balance.makespan_over_bound;
  const std::string bound =
      cat("which lies at ", ratio_text(balance.least_over_mean()),
          " × the mean load of a rank.");
  if (ratio < 1.00005) {
    return "No plan can be faster in matrix work: the makespan is at the "
           "lower bound, " +
           bound;
  }
  if (ratio < 1.1) {
    return fmt::format(
        "No plan can be more than {:.2f} % faster in matrix "
        "work, by the lower bound, {}",
        (ratio - 1) * 100, bound);
  }
  return cat("The makespan is ", ratio_text(ratio), " × the lower bound, ",
             bound);
}

// The plan in a sentence or two.
std::string verdict(const PageView& view) {
  const Balance& now = view.plan().balance;
  if (view.plan().plan.matrices.empty())
    return "Every tensor is updated by AdamW; there is no matrix to own.";
  std::string text = bound_text(now);
  if (view.two()) {
    text += cat(" Under ", view.old_plan().plan.options.strategy,
                " matrix work takes ",
                ratio_text(view.old_plan().balance.makespan_over_bound /
                           now.makespan_over_bound),
                " × as long as under ", view.plan().plan.options.strategy, ".");
  }
  return text;
}

void put_model_facts(Html& out, const Plan& plan) {
  int64_t elements = 0;
  for (const Tensor& tensor : plan.model.tensors) elements += tensor.elements();
  put_fact(out, "Model",
           cat(plan.model.name, plan.model.fused ? ", fused" : "", ", ",
               human_count(static_cast<double>(elements)), " elements"));
  put_fact(out, "Tensors",
           counted(static_cast<int64_t>(plan.model.tensors.size()), "tensor"));
  put_fact(out, "Matrices",
           cat(grouped(static_cast<int64_t>(plan.matrices.size())), ", split ",
               to_string(plan.options.splits)));
  put_fact(out, "Mesh",
           cat(to_string(plan.mesh), ", ", counted(plan.mesh.world(), "rank"),
               ", ", plan.options.ranks_per_node, " per node"));
}

void put_option_facts(Html& out, const ReportPlan& shown) {
  const Plan& plan = shown.plan;
  const PlanOptions& options = plan.options;
  put_fact(out, "Rule", rule_text(plan));
  put_fact(out, "Micro-groups",
           cat(options.micro_groups, ", capacity ",
               human_bytes(options.capacity_bytes)));
  put_fact(out, "Balanced by",
           options.weight ? std::string(to_string(*options.weight)) : "");
  put_fact(out, "Alpha",
           options.alpha ? fmt::format("{:.4g}", *options.alpha) : "");
  put_fact(out, "Buckets",
           cat(grouped(num_buckets(plan)), ", closed at ",
               human_count(static_cast<double>(options.bucket_elements)),
               " elements"));
  put_fact(out, "Memory cap",
           options.memory_cap_bytes > 0
               ? human_bytes(options.memory_cap_bytes) + " per rank"
               : "");
  if (shown.terms)
    put_fact(out, "Activations", describe_activations(*shown.terms, plan.mesh));
  put_fact(out, "Digest", plan.digest);
}

std::string page_kind(const PageView& view) {
  if (view.plans.size() > 2) return "Canzona compare";
  if (!view.two()) return "Canzona plan";
  return cat("Canzona plan, against ", view.old_plan().plan.options.strategy);
}

}  // namespace

void add_headline(Html& out, const PageView& view) {
  const Plan& plan = view.plan().plan;
  out.put("<header><p class=\"kind\">{}</p><h1>{}</h1>", page_kind(view),
          plan.model.name);
  out.put(
      "<p class=\"asked\"><b>{}</b> on {} · rule <b>{}</b> · strategy "
      "<b>{}</b></p>",
      counted(plan.mesh.world(), "rank"), to_string(plan.mesh), plan.rule,
      plan.options.strategy);
  out.put("<p class=\"verdict\">{}</p></header>\n<div class=\"tiles\">\n",
          verdict(view));
  put_makespan_tile(out, view);
  put_idle_tile(out, view);
  put_memory_tile(out, view);
  put_bytes_tile(out, view);
  put_step_tile(out, view);
  out.add(
      "</div>\n<details class=\"facts\"><summary>What was asked"
      "</summary><dl>\n");
  put_model_facts(out, plan);
  put_option_facts(out, view.plan());
  out.add("</dl></details>\n");
}

// All strategies side by side; the best figure of every column stands out.
namespace {

std::string count_text(double count) {
  return grouped(static_cast<int64_t>(count));
}

// A column: smaller is better in all of them.
struct Column {
  const char* group;
  const char* name;
  std::function<double(const ReportPlan&)> value;
  std::string (*text)(double);
};

std::vector<Column> balance_columns() {
  return {
      {"all ranks", "makespan / bound",
       [](auto& p) { return p.balance.makespan_over_bound; }, ratio_text},
      {"all ranks", "makespan / mean",
       [](auto& p) { return p.balance.makespan_over_mean; }, ratio_text},
      {"all ranks", "idle",
       [](auto& p) { return double(p.balance.idle_ranks); }, count_text},
      {"homes, max / mean", "elements",
       [](auto& p) { return p.balance.dp.memory_max_over_mean; }, ratio_text},
      {"homes, max / mean", "cost",
       [](auto& p) { return p.balance.dp.cost_max_over_mean; }, ratio_text},
      {"homes, max / mean", "bucket bytes",
       [](auto& p) { return p.balance.bucket_bytes_max_over_even; },
       ratio_text},
      {"tp, worst home", "cost",
       [](auto& p) { return p.balance.tp_worst.cost_max_over_mean; },
       ratio_text},
  };
}

std::vector<Column> rank_columns() {
  return {
      {"per rank, at most", "memory",
       [](auto& p) {
         return double(p.plan.summary.memory_per_rank_max.value());
       },
       bytes_text},
      {"per rank, at most", "sent",
       [](auto& p) {
         return double(p.plan.summary.bytes_per_rank_max.value());
       },
       bytes_text},
      {"per rank, at most", "step, predicted",
       [](auto& p) { return p.plan.summary.step_seconds_mean; }, human_seconds},
  };
}

void put_head(Html& out, const std::vector<Column>& columns) {
  out.add("<thead><tr><th rowspan=\"2\">strategy</th>");
  for (size_t i = 0; i < columns.size();) {
    size_t end = i;
    while (end < columns.size() &&
           std::string_view(columns[end].group) == columns[i].group)
      ++end;
    out.put("<th class=\"n\" colspan=\"{}\">{}</th>", end - i,
            columns[i].group);
    i = end;
  }
  out.add("</tr>\n<tr>");
  for (const Column& column : columns)
    out.put("<th class=\"n\">{}</th>", column.name);
  out.add("</tr></thead>\n");
}

// Text is compared, so that figures that look equal are marked alike.
std::string best_text(const PageView& view, const Column& column) {
  double best = column.value(view.plans[0]);
  for (const ReportPlan& shown : view.plans)
    best = std::min(best, column.value(shown));
  return column.text(best);
}

std::string mark_of(const PageView& view, size_t plan) {
  if (!view.two()) return "";
  return plan == view.before  ? " (before)"
         : plan == view.after ? " (after)"
                              : "";
}

}  // namespace

void add_strategies(Html& out, const PageView& view) {
  if (!view.several()) return;
  begin_section(out, "strategies", "Strategies");
  std::vector<Column> columns = balance_columns();
  for (Column& column : rank_columns()) columns.push_back(std::move(column));
  out.add("<div class=\"scroll\"><table class=\"wide\">");
  put_head(out, columns);
  out.add("<tbody>\n");
  for (size_t i = 0; i < view.plans.size(); ++i) {
    const ReportPlan& shown = view.plans[i];
    out.put("<tr><th>{}<small>{}</small></th>", shown.plan.options.strategy,
            mark_of(view, i));
    for (const Column& column : columns) {
      const std::string text = column.text(column.value(shown));
      const bool best = text == best_text(view, column);
      out.put("<td class=\"n{}\">{}</td>", best ? " best" : "", text);
    }
    out.add("</tr>\n");
  }
  out.put(
      "</tbody></table></div><p class=\"note\">Smaller is better "
      "everywhere; the best of a column is bold. Times are predicted "
      "({}{}).</p>",
      rate_text(view.plan().plan),
      view.plan().plan.options.links.nominal ? ", nominal links" : "");
  end_section(out);
}

// Tells how to read the report, in the project's words.
namespace {

constexpr std::array<std::pair<const char*, const char*>, 14> kWords = {{
    {"tensor", "a named parameter as the model has it"},
    {"matrix",
     "one 2-D block that the rule treats as a whole: a tensor, or a "
     "piece of one after a split"},
    {"shard", "the part of a tensor that one rank stores"},
    {"rule",
     "an optimizer: how one matrix is updated. Tensors that are no "
     "matrices are left to AdamW"},
    {"bucket", "a run of tensors reduced together during backward"},
    {"home",
     "the data-parallel coordinate to which a matrix's gradient is "
     "reduced; its tp ranks keep the master weights, 1/tp each"},
    {"owner",
     "the rank of the home that computes a matrix's update; several "
     "that share one matrix are a team"},
    {"micro-group",
     "the matrices moved and computed together in one "
     "all-to-all round"},
    {"load",
     "the work of a rank over a period of steps: ordinary steps and "
     "the refreshes of the rule"},
    {"mean",
     "all work divided by the number of ranks: what each would carry "
     "if matrices could be cut anywhere"},
    {"lower bound",
     "no plan that gives whole matrices to ranks can have a "
     "smaller makespan"},
    {"makespan",
     "the largest load, summed over the steps of a period: all "
     "other ranks wait for it"},
    {"idle rank", "a rank that owns no matrix"},
    {"predicted",
     "computed from the plan and a rate of work, not measured. "
     "Nominal: no cost table of the device, or no link speeds, "
     "were given; ratios hold, times are rough"},
}};

}  // namespace

void add_glossary(Html& out) {
  begin_section(out, "words", "How to read it");
  out.add(
      "<p>Who computes a matrix is decided apart from where its pieces "
      "are stored. The result of a step is the same under every strategy; "
      "time, traffic and memory differ.</p><dl class=\"words\">\n");
  for (const auto& [word, meaning] : kWords)
    out.put("<div><dt>{}</dt><dd>{}</dd></div>\n", word, meaning);
  out.add("</dl>");
  end_section(out);
}

namespace {

void put_navigation(Html& out, const PageView& view) {
  out.add(
      "<nav><a href=\"#loads\">Load</a><a href=\"#buckets\">Buckets</a>"
      "<a href=\"#micro-groups\">Micro-groups</a>");
  if (has_zero(view.plan().plan)) out.add("<a href=\"#zero\">ZeRO</a>");
  out.add(
      "<a href=\"#memory\">Memory</a><a href=\"#wire\">Bytes</a>"
      "<a href=\"#schedule\">Order</a><a href=\"#tensors\">Tensors</a>");
  if (view.several()) out.add("<a href=\"#strategies\">Strategies</a>");
  out.add("<a href=\"#words\">How to read it</a></nav>\n");
}

}  // namespace

std::string html_report(const std::vector<ReportPlan>& plans) {
  const PageView view(plans);
  const Plan& plan = view.plan().plan;
  const Page page{.title = cat(plan.model.name, " on ", to_string(plan.mesh),
                               ", ", plan.rule),
                  .footer = "Made by Canzona from shapes alone; opens offline.",
                  .script = html_script()};
  Html out;
  begin_page(out, page);
  add_headline(out, view);
  put_navigation(out, view);
  out.add("<main>\n");
  add_strategies(out, view);
  add_loads(out, view);
  add_buckets(out, view);
  add_micro_groups(out, view);
  add_zero(out, view);
  add_memory(out, view);
  add_wire(out, view);
  add_schedule(out, view);
  add_tensors(out, view);
  add_glossary(out);
  end_page(out, page);
  return out.take();
}

}  // namespace canzona

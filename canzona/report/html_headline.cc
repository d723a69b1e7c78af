// What a reader must know in one look, and what was asked.

#include "canzona/base/text.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/in_parts.h"
#include "canzona/report/numbers.h"
#include "canzona/report/plan_view.h"

namespace canzona {
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
  std::vector<std::string> notes{cat(
      "mean ",
      human_bytes(static_cast<int64_t>(plan.summary.memory_per_rank_mean)))};
  if (plan.options.memory_cap_bytes > 0) {
    notes.push_back(cat("cap ", human_bytes(plan.options.memory_cap_bytes)));
  }
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
  if (summary.step_seconds_worst > summary.step_seconds_mean) {
    notes.push_back("worst step " + human_seconds(summary.step_seconds_worst));
  }
  if (view.two()) {
    notes.push_back(
        cat("before: ",
            human_seconds(view.old_plan().plan.summary.step_seconds_mean)));
  }
  put_tile(out, "Predicted step", human_seconds(summary.step_seconds_mean), "",
           notes);
}

// How near the plan is to the best possible one.
std::string bound_text(const Balance& balance) {
  const double ratio = balance.makespan_over_bound;
  const std::string bound =
      cat("which lies at ", ratio_text(balance.bound_over_mean),
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
  if (view.plan().plan.matrices.empty()) {
    return "Every tensor is updated by AdamW; there is no matrix to own.";
  }
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
  for (const Tensor& tensor : plan.model.tensors) {
    elements += tensor.elements();
  }
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

}  // namespace canzona

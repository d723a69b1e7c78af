// All strategies side by side; the best figure of every column stands out.

#include <algorithm>
#include <functional>

#include "canzona/base/text.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/numbers.h"

namespace canzona {
namespace {

std::string bytes_text(double bytes) {
  return human_bytes(static_cast<int64_t>(bytes));
}
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
           std::string_view(columns[end].group) == columns[i].group) {
      ++end;
    }
    out.put("<th class=\"n\" colspan=\"{}\">{}</th>", end - i,
            columns[i].group);
    i = end;
  }
  out.add("</tr>\n<tr>");
  for (const Column& column : columns) {
    out.put("<th class=\"n\">{}</th>", column.name);
  }
  out.add("</tr></thead>\n");
}

// Text is compared, so that figures that look equal are marked alike.
std::string best_text(const PageView& view, const Column& column) {
  double best = column.value(view.plans[0]);
  for (const ReportPlan& shown : view.plans) {
    best = std::min(best, column.value(shown));
  }
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

}  // namespace canzona

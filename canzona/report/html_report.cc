#include "canzona/report/html_report.h"

#include "canzona/base/text.h"
#include "canzona/report/html_script.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/zero_view.h"

namespace canzona {
namespace {

void put_navigation(Html& out, const PageView& view) {
  out.add(
      "<nav><a href=\"#loads\">Load</a><a href=\"#buckets\">Buckets</a>"
      "<a href=\"#micro-groups\">Micro-groups</a>");
  if (has_zero(view.plan().plan)) out.add("<a href=\"#zero\">ZeRO</a>");
  out.add(
      "<a href=\"#memory\">Memory</a><a href=\"#wire\">Bytes</a>"
      "<a href=\"#tensors\">Tensors</a>");
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
  add_tensors(out, view);
  add_glossary(out);
  end_page(out, page);
  return out.take();
}

}  // namespace canzona

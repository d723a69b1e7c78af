// The table of tensors. The first rows stand in the page itself, so that the
// table says something without a script; the script shows the rest on demand.

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/html_tensor_data.h"
#include "canzona/report/in_parts.h"
#include "canzona/report/numbers.h"

namespace canzona {
namespace {

constexpr size_t kRowsInPage = 100;
// As many as the style sheet leaves when the page is printed.
constexpr size_t kRowsOnPaper = 60;
constexpr size_t kMaxOwnersShown = 8;

struct Heading {
  const char* name;
  const char* css;
};
constexpr Heading kHeadings[] = {
    {"tensor", ""}, {"shape", "n"},  {"role", ""},  {"cut", ""},
    {"rule", ""},   {"bucket", "n"}, {"home", "n"}, {"owner rank", "n"},
    {"cost", "n"},  {"bytes", "n"}};

std::string home_text(const PlannedTensor& at, int32_t stage) {
  const PlanPart& plan = *at.part;
  const int32_t home = home_of(plan, at.tensor);
  const auto tensor = static_cast<size_t>(at.tensor);
  if (home == kEveryHome)
    return plan.model.tensors[tensor].matrix_rule ? "every" : "cut";
  std::string text = part_label(*at.part);
  if (!text.empty()) text += " · ";
  if (plan.mesh.pp > 1) text += cat(stage, " · ");
  return cat(text, home);
}

std::string owner_text(const PlannedTensor& at, int32_t stage) {
  const PlanPart& plan = *at.part;
  const int32_t home = home_of(plan, at.tensor);
  const auto tensor = static_cast<size_t>(at.tensor);
  if (!plan.model.tensors[tensor].matrix_rule) return "–";
  const std::vector<int32_t> owners = owners_of_tensor(plan, at.tensor);
  if (home == kEveryHome) return "every";
  const auto rank = [&](int32_t t) {
    return plan.rank_in_whole(
        plan.world_rank(plan.grid.rank(stage, home, t), 0));
  };
  if (owners.empty()) {
    return cat(rank(0), " … ", rank(plan.grid.tp - 1));
  }
  std::vector<std::string> ranks;
  for (size_t i = 0; i < std::min(owners.size(), kMaxOwnersShown); ++i) {
    ranks.push_back(std::to_string(rank(owners[i])));
  }
  return join(ranks, ", ") + (owners.size() > kMaxOwnersShown
                                  ? cat(" +", owners.size() - kMaxOwnersShown)
                                  : "");
}

void put_row(Html& out, const PlannedTensor& at) {
  const PlanPart& plan = *at.part;
  const auto tensor = static_cast<size_t>(at.tensor);
  const Tensor& it = plan.model.tensors[tensor];
  const int32_t stage = plan.buffer_of(at.tensor).stage;
  out.put(
      "<tr><td class=\"name\">{}</td><td class=\"n\">{}</td><td>{}</td>"
      "<td>{}</td><td>{}</td>",
      it.name, dims_text(it.shape), to_string(it.role), to_string(it.cut),
      it.matrix_rule ? plan.rule : "adamw");
  out.put(
      "<td class=\"n\">{}</td><td class=\"n\">{}</td>"
      "<td class=\"n\">{}</td><td class=\"n\">{}</td>"
      "<td class=\"n\">{}</td></tr>\n",
      bucket_number(plan, at.tensor), home_text(at, stage),
      owner_text(at, stage),
      it.matrix_rule ? ticks_text(plan, cost_of_tensor(plan, at.tensor)) : "–",
      human_bytes(it.elements() * parameter_bytes(plan)));
}

void put_head(Html& out) {
  out.add("<thead><tr>");
  for (const Heading& heading : kHeadings) {
    out.put("<th class=\"{}\" scope=\"col\">{}</th>", heading.css,
            heading.name);
  }
  out.add("</tr></thead>\n");
}

void put_tools(Html& out, const Plan& plan, size_t shown) {
  const auto all = static_cast<int64_t>(plan.model.tensors.size());
  out.put(
      "<div class=\"tools\"><input type=\"search\" id=\"query\" "
      "placeholder=\"search: down_proj home:3 bucket:0 rank:12 adamw\" "
      "aria-label=\"Search tensors\" autocomplete=\"off\" "
      "spellcheck=\"false\" hidden>"
      "<output id=\"count\">{} of {}</output></div>\n"
      "<noscript><p class=\"note\">Searching needs the page's script. "
      "Without it the first {} of {} are listed; <code>canzona "
      "explain</code> answers for any of them.</p></noscript>\n",
      grouped(static_cast<int64_t>(shown)), counted(all, "tensor"),
      grouped(static_cast<int64_t>(shown)), counted(all, "tensor"));
}

}  // namespace

void add_tensors(Html& out, const PageView& view) {
  const Plan& plan = view.plan().plan;
  begin_section(out, "tensors", "Tensors");
  out.put(
      "<p>Every tensor with its rule, its home and its owner under "
      "strategy {}. Cost: matrix work per step, predicted ({}). Bytes: "
      "the whole tensor, {}.</p>",
      plan.options.strategy, rate_text(plan),
      to_string(plan.options.parameters));
  const size_t shown = std::min(plan.model.tensors.size(), kRowsInPage);
  put_tools(out, plan, shown);
  if (shown > kRowsOnPaper) {
    out.put("<p class=\"note paper\">The first {} rows found, of {}.</p>\n",
            kRowsOnPaper,
            counted(static_cast<int64_t>(plan.model.tensors.size()), "tensor"));
  }
  out.add("<div class=\"scroll tall\"><table id=\"tensor-table\">");
  put_head(out);
  out.add("<tbody>\n");
  for (size_t i = 0; i < shown; ++i) {
    put_row(out, planned_tensor(plan, static_cast<int32_t>(i)));
  }
  out.add(
      "</tbody></table></div>\n"
      "<button type=\"button\" id=\"more\" hidden>Show more</button>\n"
      "<script type=\"application/json\" id=\"tensor-data\">");
  out.add(tensor_data_json(plan));
  out.add("</script>");
  end_section(out);
}

}  // namespace canzona

#include <algorithm>
#include <map>
#include <tuple>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/html_sections.h"
#include "canzona/report/numbers.h"
#include "canzona/report/places.h"

namespace canzona {
namespace {

constexpr size_t kMaxDigits = 9;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Numbers equal values in the order in which they first come.
template <class Value>
class Numbered {
 public:
  size_t number_of(Value value) {
    const auto [at, fresh] = numbers_.try_emplace(value, values_.size());
    if (fresh) values_.push_back(std::move(value));
    return at->second;
  }
  const std::vector<Value>& values() const { return values_; }

 private:
  std::map<Value, size_t> numbers_;
  std::vector<Value> values_;
};

struct Kind {
  std::vector<int64_t> shape;
  Role role = Role::kMatrix;
  Cut cut = Cut::kNone;
  bool matrix_rule = false;
  double cost = 0;
  friend auto operator<=>(const Kind&, const Kind&) = default;
};

class Writer {
 public:
  explicit Writer(const Plan& plan) : plan_(plan) {}

  std::string write() {
    JsonWriter rows;
    rows.begin_array();
    const auto count = static_cast<int32_t>(plan_.model.tensors.size());
    for (int32_t tensor = 0; tensor < count; ++tensor) write_row(rows, tensor);
    rows.end_array();
    JsonWriter head;
    write_head(head);
    // Patterns and kinds are complete only after the rows.
    std::string text = head.take();
    text.pop_back();
    return text + ",\"rows\":" + rows.take() + "}";
  }

 private:
  void write_row(JsonWriter& out, int32_t tensor) {
    const Tensor& it = plan_.model.tensors[static_cast<size_t>(tensor)];
    const PlannedTensor at = planned_tensor(plan_, tensor);
    NameParts parts = split_name(it.name);
    out.begin_array();
    out.value(patterns_.number_of(std::move(parts.pieces)));
    out.value(kinds_.number_of({it.shape, it.role, it.cut, it.matrix_rule,
                                cost_of_tensor(plan_, tensor)}));
    out.value(bucket_number(*at.part, at.tensor));
    out.value(home_of(*at.part, at.tensor));
    write_owners(out, owners_of_tensor(*at.part, at.tensor));
    for (int64_t number : parts.numbers) out.value(number);
    out.end_array();
  }

  static void write_owners(JsonWriter& out,
                           const std::vector<int32_t>& owners) {
    if (owners.size() > 1)
      out.values(owners);
    else
      out.value(owners.empty() ? -1 : owners[0]);
  }

  void write_head(JsonWriter& out) const {
    out.begin_object();
    out.field("stages", plan_.mesh.pp);
    write_parts(out);
    out.member("buckets").begin_array();
    for (size_t i = 0; i < plan_.parts.size(); ++i)
      for (const Bucket& bucket : plan_.parts[i].buckets) {
        out.begin_array().value(stage_of_bucket(plan_.parts[i], bucket));
        out.value(i).end_array();
      }
    out.end_array();
    out.member("patterns").begin_array();
    for (const auto& pieces : patterns_.values()) out.values(pieces);
    out.end_array();
    out.member("kinds").begin_array();
    for (const Kind& kind : kinds_.values()) write_kind(out, kind);
    out.end_array().end_object();
  }

  // Counts the homes of all replicas: a stage's ranks are so many.
  static int32_t homes_of(const PlanPart& plan) {
    return plan.mesh.ranks_per_stage() / plan.grid.tp;
  }

  void write_parts(JsonWriter& out) const {
    const Mesh& mesh = plan_.mesh;
    out.member("mesh").values(std::vector<int32_t>{mesh.tp, mesh.cp, mesh.ep});
    out.member("parts").begin_array();
    for (const PlanPart& part : plan_.parts) {
      out.begin_array().value(part.grid.tp).value(homes_of(part));
      out.value(part.ep > 1 ? part.e : -1);
      out.value(part_label(part)).end_array();
    }
    out.end_array();
  }

  void write_kind(JsonWriter& out, const Kind& kind) const {
    int64_t bytes = parameter_bytes(plan_);
    for (int64_t dim : kind.shape) bytes *= dim;
    out.begin_array();
    out.value(dims_text(kind.shape));
    out.value(to_string(kind.role)).value(to_string(kind.cut));
    out.value(kind.matrix_rule ? plan_.rule : "adamw");
    out.value(kind.cost);
    out.value(kind.matrix_rule ? ticks_text(plan_, kind.cost) : "–");
    out.value(bytes).value(human_bytes(bytes));
    out.end_array();
  }

  const Plan& plan_;
  Numbered<std::vector<std::string>> patterns_;
  Numbered<Kind> kinds_;
};

}  // namespace

std::string tensor_data_json(const Plan& plan) { return Writer(plan).write(); }

NameParts split_name(std::string_view name) {
  NameParts parts{{""}, {}};
  for (size_t i = 0; i < name.size();) {
    size_t end = i;
    while (end < name.size() && is_digit(name[end])) ++end;
    const size_t digits = end - i;
    if (digits == 0) {
      parts.pieces.back() += name[i++];
      continue;
    }
    const std::string_view run = name.substr(i, digits);
    if (digits > kMaxDigits || (digits > 1 && run[0] == '0')) {
      parts.pieces.back() += run;
    } else {
      parts.numbers.push_back(std::stoll(std::string(run)));
      parts.pieces.emplace_back();
    }
    i = end;
  }
  return parts;
}

std::vector<int32_t> owners_of_tensor(const PlanPart& plan, int32_t tensor) {
  const auto at = static_cast<size_t>(tensor);
  std::vector<int32_t> all;
  for (int32_t m = plan.first_matrix[at]; m < plan.first_matrix[at + 1]; ++m) {
    const auto owners = plan.owners[static_cast<size_t>(m)];
    if (owners.empty()) return {};
    all.insert(all.end(), owners.begin(), owners.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

std::string part_label(const PlanPart& part) {
  if (!part.of_experts) return "";
  return part.ep > 1 ? cat("ep ", part.e) : "experts";
}

double cost_of_tensor(const SettledRequest& plan, int32_t tensor) {
  const auto at = static_cast<size_t>(tensor);
  double cost = 0;
  for (int32_t m = plan.first_matrix[at]; m < plan.first_matrix[at + 1]; ++m)
    cost += mean_cost(plan, static_cast<size_t>(m));
  return cost;
}

// The table of tensors. The first rows stand in the page itself, so that the
// table says something without a script; the script shows the rest on demand.
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
        rank_in_part(plan, plan.grid.rank(stage, home, t), 0));
  };
  if (owners.empty()) return cat(rank(0), " … ", rank(plan.grid.tp - 1));
  std::vector<std::string> ranks;
  for (size_t i = 0; i < std::min(owners.size(), kMaxOwnersShown); ++i)
    ranks.push_back(std::to_string(rank(owners[i])));
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
  for (size_t i = 0; i < shown; ++i)
    put_row(out, planned_tensor(plan, static_cast<int32_t>(i)));
  out.add(
      "</tbody></table></div>\n"
      "<button type=\"button\" id=\"more\" hidden>Show more</button>\n"
      "<script type=\"application/json\" id=\"tensor-data\">");
  out.add(tensor_data_json(plan));
  out.add("</script>");
  end_section(out);
}

}  // namespace canzona

#include "canzona/report/html_tensor_data.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/html_view.h"
#include "canzona/report/numbers.h"

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
    for (int32_t tensor = 0; tensor < count; ++tensor) {
      write_row(rows, tensor);
    }
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
    if (owners.size() > 1) {
      out.values(owners);
    } else {
      out.value(owners.empty() ? -1 : owners[0]);
    }
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

  // Of all replicas: a stage's ranks are so many.
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
  for (int32_t m = plan.first_matrix[at]; m < plan.first_matrix[at + 1]; ++m) {
    cost += mean_cost(plan, static_cast<size_t>(m));
  }
  return cost;
}

}  // namespace canzona

#include "canzona/plan/json/plan_json.h"

#include <algorithm>
#include <map>
#include <optional>

#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/plan/coordinates.h"
#include "canzona/plan/option_table.h"
#include "canzona/plan/plan.h"

namespace canzona {
using namespace plan;
namespace {

// Returns the text less white space outside strings.
std::string without_space(std::string_view text) {
  std::string out;
  bool in_string = false, escaped = false;
  for (const char c : text) {
    const bool space = c == ' ' || c == '\t' || c == '\n' || c == '\r';
    if (space && !in_string) continue;
    out += c;
    if (c == '"' && !escaped) in_string = !in_string;
    escaped = in_string && c == '\\' && !escaped;
  }
  return out;
}

// Returns the first difference of two trees as a JSON pointer, if there is one.
std::optional<std::string> first_difference(const Json& a, const Json& b,
                                            const std::string& at = "") {
  if (a == b) return std::nullopt;
  if (a.is_object() && b.is_object()) {
    for (const auto& [key, value] : a.items())
      if (!b.contains(key) || value != b[key])
        return b.contains(key)
                   ? first_difference(value, b[key], cat(at, "/", key))
                   : cat(at, "/", key);
    for (const auto& [key, value] : b.items())
      if (!a.contains(key)) return cat(at, "/", key);
  }
  if (a.is_array() && b.is_array()) {
    const size_t both = std::min(a.size(), b.size());
    for (size_t i = 0; i < both; ++i)
      if (a[i] != b[i]) return first_difference(a[i], b[i], cat(at, "/", i));
    return cat(at, "/", both);
  }
  return at;
}

}  // namespace

}  // namespace canzona

namespace canzona::plan {

std::string digest_of_former(std::string_view text, const std::string& digest) {
  std::string bare = without_space(text);
  const std::string key = R"("digest":")";
  const size_t at = bare.find(key + digest + '"');
  if (at == std::string::npos) return "";
  return sha256_hex(bare.erase(at + key.size(), digest.size()) + "\n");
}

}  // namespace canzona::plan

namespace canzona {

void require_canonical(const Json& root, std::string_view text,
                       std::string canonical, const JsonLimits& limits) {
  canonical.pop_back();  // the final newline
  if (without_space(text) == canonical) return;
  const auto at = first_difference(root, parse_json(canonical, limits));
  if (!at) return;
  throw UsageError(cat(limits.what, ": ", *at,
                       " differs from the plan that the digest describes; "
                       "make the plan again"));
}

namespace {

// Writes only what differs from plain ZeRO-1.
void write_zero(const ZeroOptions& zero, int32_t homes, JsonWriter& out) {
  ZeroOptions plain;
  plain.sizes = with_states(plain.sizes, homes);
  if (zero == plain) return;
  out.member("zero").begin_object();
  out.field("z1", zero.sizes.z1).field("z2", zero.sizes.z2);
  out.field("z3", zero.sizes.z3);
  if (zero.experts.z1 > 0)
    out.member("experts")
        .begin_array()
        .value(zero.experts.z1)
        .value(zero.experts.z2)
        .value(zero.experts.z3)
        .end_array();
  out.field("message", to_string(zero.message));
  out.field("prefetch", zero.prefetch);
  out.field("replica_sum", to_string(zero.replica_sum));
  if (zero.reach != Reach::kDirect)
    out.field("collectives", to_string(zero.reach));
  out.end_object();
}

void write_options(const PlanOptions& o, int32_t homes, JsonWriter& out) {
  out.member("options").begin_object();
  out.field("strategy", o.strategy);
  out.field("micro_groups", o.micro_groups);
  out.field("split", to_string(o.splits));
  out.field("bucket_elements", o.bucket_elements);
  out.field("alpha", o.alpha.value_or(1));
  out.field("weight", to_string(o.weight.value_or(Weight::kCost)));
  out.field("capacity_bytes", o.capacity_bytes);
  out.field("memory_cap_bytes", o.memory_cap_bytes);
  out.field("ranks_per_node", o.ranks_per_node);
  out.field("parameters", to_string(o.parameters));
  out.member("links");
  write_links(o.links, out);
  write_zero(o.zero, homes, out);
  for (const PlannerOption& option : planner_options())
    if (option.kept && option.kept(o) != option.kept(PlanOptions()))
      out.field(option.member(), option.kept(o));
  out.end_object();
}

void write_sections(const std::vector<Section>& sections, JsonWriter& out) {
  out.begin_array();
  for (const Section& section : sections) {
    out.begin_array().value(section.name);
    out.value(section.rows.first)
        .value(section.rows.run)
        .value(section.rows.stride);
    out.value(section.rows.count).value(section.heads).end_array();
  }
  out.end_array();
}

// Writes one row per tensor: name, shape, role, cut, layer, expert, rule, index
// of its sections. Many tensors share their sections, so these are listed once.
void write_tensors(const Model& model, JsonWriter& out) {
  std::vector<const std::vector<Section>*> kinds;
  std::map<std::string, size_t> known;
  std::vector<int64_t> kind_of;
  kind_of.reserve(model.tensors.size());
  for (const Tensor& tensor : model.tensors) {
    if (tensor.sections.empty()) {
      kind_of.push_back(-1);
      continue;
    }
    JsonWriter key;
    write_sections(tensor.sections, key);
    const auto [it, fresh] = known.emplace(key.take(), kinds.size());
    if (fresh) kinds.push_back(&tensor.sections);
    kind_of.push_back(static_cast<int64_t>(it->second));
  }
  out.member("parts").begin_array();
  for (const auto* sections : kinds) write_sections(*sections, out);
  out.end_array();
  out.member("tensors").begin_array();
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const Tensor& t = model.tensors[i];
    out.begin_array().value(t.name).values(t.shape);
    out.value(to_string(t.role)).value(to_string(t.cut));
    out.value(t.layer).value(t.expert).value(t.matrix_rule).value(kind_of[i]);
    out.end_array();
  }
  out.end_array();
}

// Written only if there are frozen tensors.
void write_frozen(const Model& model, JsonWriter& out) {
  std::vector<int64_t> frozen;
  for (size_t t = 0; t < model.tensors.size(); ++t)
    if (model.tensors[t].frozen) frozen.push_back(static_cast<int64_t>(t));
  if (!frozen.empty()) out.member("frozen").values(frozen);
}

void write_model(const Model& model, JsonWriter& out) {
  out.member("model").begin_object();
  out.field("name", model.name);
  out.field("layers", model.num_layers);
  out.field("experts", model.num_experts);
  out.field("query_heads", model.query_heads);
  out.field("kv_heads", model.kv_heads);
  out.field("fused", model.fused);
  write_tensors(model, out);
  write_frozen(model, out);
  out.end_object();
}

void write_mesh(const Mesh& mesh, JsonWriter& out) {
  out.member("mesh").begin_object();
  out.field("dp", mesh.dp).field("cp", mesh.cp).field("tp", mesh.tp);
  out.field("pp", mesh.pp).field("ep", mesh.ep).end_object();
}

CostsByShape costs_by_shape(const Plan& plan) {
  CostsByShape by_shape;
  for (size_t m = 0; m < plan.matrices.size(); ++m)
    by_shape.emplace(std::pair(0, shape_of(plan.matrices[m])), plan.costs[m]);
  return by_shape;
}

void write_buckets(const PlanPart& part, JsonWriter& out) {
  out.member("buffers").begin_array();
  for (const Buffer& b : part.buffers) {
    out.begin_array().value(b.stage).value(b.ep).value(b.num_homes).end_array();
  }
  out.end_array();
  out.member("buckets").begin_array();
  for (const Bucket& b : part.buckets) {
    out.begin_object().field("buffer", b.buffer);
    out.field("matrix_tensors", b.num_matrix_tensors);
    out.member("tensors").values(b.tensors);
    out.member("cuts").values(b.cuts);
    out.member("adamw_cuts").values(b.adamw_cuts).end_object();
  }
  out.end_array();
}

// Owners are ranks of the whole plan, in the first replica.
void write_part_owners(const PlanPart& part, size_t m, JsonWriter& out) {
  const int32_t tensor = part.matrices[m].tensor;
  const int32_t home = part.home[index(tensor)];
  std::vector<int32_t> ranks;
  for (const int32_t plane : part.owners[m])
    ranks.push_back(home < 0 || part.bucket_of[index(tensor)] < 0
                        ? plane
                        : rank_of(part, tensor, home, plane));
  write_owners(ranks, out);
}

void write_decisions(const PlanPart& part, JsonWriter& out) {
  out.member("home").values(part.home);
  out.member("owners").begin_array();
  for (size_t m = 0; m < part.owners.size(); ++m)
    write_part_owners(part, m, out);
  out.end_array();
  out.member("rounds").values(part.micro_group);
}

void write_summary(const PlanSummary& s, bool teams, JsonWriter& out) {
  out.member("predicted").begin_object();
  write_loads(s, teams ? std::optional(s.team_bound) : std::nullopt, out);
  out.field("memory_per_rank_max", s.memory_per_rank_max.value());
  out.field("memory_per_rank_mean", s.memory_per_rank_mean);
  out.field("step_seconds_mean", s.step_seconds_mean);
  out.field("step_seconds_worst", s.step_seconds_worst);
  out.end_object();
}

void write_plan_parts(const Plan& plan, JsonWriter& out) {
  out.member("parts").begin_array();
  for (const PlanPart& part : plan.parts) {
    out.begin_object();
    // The only part has the figures of the plan.
    if (cuts_experts_apart(plan))
      write_summary(part.summary, part.options.teams != kTeamsOff, out);
    write_buckets(part, out);
    write_decisions(part, out);
    out.end_object();
  }
  out.end_array();
}

std::string write(const Plan& plan, const std::string& digest) {
  constexpr size_t kBytesPerTensor = 160;  // more than most tensors need
  JsonWriter out = begin_plan(digest);
  out.reserve(plan.model.tensors.size() * kBytesPerTensor);
  out.member("request").begin_object();
  write_options(plan.options, plan.mesh.homes(), out);
  out.member("groups").begin_array();
  write_group(plan.rule, plan.rule_options, out);
  out.end_array();
  write_costs(plan.cost_basis, costs_by_shape(plan), false, out);
  out.end_object();
  write_summary(plan.summary, plan.options.teams != kTeamsOff, out);
  out.member("storage").begin_object().field("maker", kMadeByPlanner);
  write_mesh(plan.mesh, out);
  out.field("traffic", traffic_name(plan.traffic));
  write_model(plan.model, out);
  out.end_object().member("decisions").begin_object();
  write_plan_parts(plan, out);
  out.end_object().end_object();
  return out.take() + "\n";
}

}  // namespace

std::string digest_of(const Plan& plan) { return sha256_hex(write(plan, "")); }

std::string plan_to_json(const Plan& plan) { return write(plan, plan.digest); }

JsonWriter begin_plan(const std::string& digest) {
  JsonWriter out;
  out.begin_object();
  out.field("format", kPlanFormat).field("version", kPlanVersion);
  out.field("digest", digest);
  return out;
}

void write_group(const std::string& rule, const RuleOptions& options,
                 JsonWriter& out) {
  out.begin_object().field("rule", rule);
  out.member("options").begin_object();
  for (const auto& [name, value] : options) out.field(name, value);
  out.end_object().end_object();
}

void write_links(const Links& links, JsonWriter& out) {
  out.begin_object();
  out.field("intra_bytes_per_second", links.intra_bytes_per_second);
  out.field("inter_bytes_per_second", links.inter_bytes_per_second);
  out.field("latency_seconds", links.latency_seconds);
  if (links.intra_latency_seconds)
    out.field("intra_latency_seconds", *links.intra_latency_seconds);
  out.field("nominal", links.nominal);
  out.end_object();
}

void write_costs(const CostBasis& basis, const CostsByShape& costs,
                 bool has_groups, JsonWriter& out) {
  out.member("cost").begin_object();
  out.field("source", basis.source);
  out.field("seconds_per_tick", basis.seconds_per_tick);
  if (basis.element_wise_bytes_per_second > 0)
    out.field("element_wise_bytes_per_second",
              basis.element_wise_bytes_per_second);
  out.member("ticks").begin_array();
  for (const auto& [key, cost] : costs) {
    const auto& [group, shape] = key;
    out.begin_array();
    if (has_groups) out.value(group);
    out.value(shape.rows).value(shape.cols);
    out.value(cost.every_step.value()).value(cost.refresh.value());
    if (shape.column_heads > 1) out.value(shape.column_heads);
    out.end_array();
  }
  out.end_array().end_object();
}

void write_owners(std::span<const int32_t> ranks, JsonWriter& out) {
  if (ranks.size() == 1)
    out.value(ranks.front());
  else
    out.values(ranks);
}

void write_loads(const LoadSummary& s, const std::optional<Ticks>& team_bound,
                 JsonWriter& out) {
  out.field("makespan_ticks", s.makespan.value());
  out.field("bound_ticks", s.bound.value());
  if (team_bound) out.field("team_bound_ticks", team_bound->value());
  out.field("mean_ticks", s.mean);
  out.field("idle_ranks", s.idle_ranks);
  out.field("bytes_per_rank_max", s.bytes_per_rank_max.value());
}

}  // namespace canzona

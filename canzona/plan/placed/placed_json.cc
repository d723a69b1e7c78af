#include "canzona/plan/placed/placed_json.h"

#include <map>

#include "canzona/base/digest.h"
#include "canzona/base/index.h"
#include "canzona/base/json_writer.h"
#include "canzona/plan/json/plan_json.h"

namespace canzona {
namespace {

void write_stored(const std::vector<std::vector<Box>>& stored,
                  JsonWriter& out) {
  out.begin_array();
  for (const auto& boxes : stored) {
    out.begin_array();
    for (const Box& box : boxes)
      out.begin_array().values(box.first).values(box.count).end_array();
    out.end_array();
  }
  out.end_array();
}

// Many tensors are stored alike: each way is listed once.
void write_placed_tensors(const PlacedPlan& plan, JsonWriter& out) {
  std::vector<const std::vector<std::vector<Box>>*> ways;
  std::map<std::vector<std::vector<Box>>, size_t> known;
  std::vector<size_t> way_of;
  for (const PlacedTensor& tensor : plan.tensors) {
    const auto [it, fresh] = known.emplace(tensor.stored, ways.size());
    if (fresh) ways.push_back(&it->first);
    way_of.push_back(it->second);
  }
  out.member("storage").begin_array();
  for (const auto* stored : ways) write_stored(*stored, out);
  out.end_array();
  out.member("tensors").begin_array();
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const PlacedTensor& tensor = plan.tensors[t];
    out.begin_array().value(tensor.name).values(tensor.shape);
    out.value(to_string(tensor.dtype)).value(tensor.group);
    out.values(tensor.splits).value(way_of[t]).end_array();
  }
  out.end_array();
}

void write_placed_groups(const PlacedPlan& plan, JsonWriter& out) {
  out.member("groups").begin_array();
  for (const PlacedGroup& group : plan.groups) {
    out.begin_object().field("rule", group.rule);
    out.member("options").begin_object();
    for (const auto& [name, value] : group.options) out.field(name, value);
    out.end_object().end_object();
  }
  out.end_array();
}

// Costs depend on the group and the shape alone.
void write_placed_costs(const PlacedPlan& plan, JsonWriter& out) {
  std::map<std::pair<int32_t, MatrixShape>, MatrixCost> costs;
  for (const PlacedMatrix& m : plan.matrices)
    costs.emplace(std::pair(plan.tensors[index(m.tensor)].group,
                            MatrixShape{m.rows, m.cols}),
                  m.cost);
  out.member("cost").begin_object();
  write_cost_basis(plan.cost_basis, out);
  out.member("ticks").begin_array();
  for (const auto& [key, cost] : costs) {
    const auto& [group, shape] = key;
    out.begin_array().value(group).value(shape.rows).value(shape.cols);
    out.value(cost.every_step.value()).value(cost.refresh.value()).end_array();
  }
  out.end_array().end_object();
}

void write_placed_summary(const PlacedSummary& s, JsonWriter& out) {
  out.member("predicted").begin_object();
  out.field("makespan_ticks", s.makespan.value());
  out.field("bound_ticks", s.bound.value());
  out.field("mean_ticks", s.mean);
  out.field("idle_ranks", s.idle_ranks);
  out.field("bytes_per_rank_max", s.bytes_per_rank_max.value());
  out.end_object();
}

void write_placed_decisions(const PlacedPlan& plan, JsonWriter& out) {
  out.member("owners").begin_array();
  for (const PlacedMatrix& m : plan.matrices) out.value(m.owner);
  out.end_array();
  out.member("rounds").begin_array();
  for (const PlacedMatrix& m : plan.matrices) out.value(m.round);
  out.end_array();
  out.member("elements").begin_array();
  for (const PlacedElements& e : plan.elements)
    out.begin_array().value(e.line).value(e.round).end_array();
  out.end_array();
}

std::string write_placed_plan(const PlacedPlan& plan,
                              const std::string& digest) {
  JsonWriter out;
  out.begin_object();
  out.field("format", kPlacedPlanFormat).field("version", kPlacedVersion);
  out.field("digest", digest);
  out.field("world", plan.world);
  out.field("wire", name_of(kWireNames, plan.options.wire));
  out.field("share_states", plan.options.share_states);
  out.field("capacity_bytes", plan.options.capacity_bytes);
  if (plan.options.strict_capacity) out.field("strict_capacity", true);
  out.field("ranks_per_node", plan.options.ranks_per_node);
  write_placed_groups(plan, out);
  write_placed_costs(plan, out);
  write_placed_summary(plan.summary, out);
  write_placed_tensors(plan, out);
  write_placed_decisions(plan, out);
  out.end_object();
  return out.take() + "\n";
}

}  // namespace

std::string digest_of(const PlacedPlan& plan) {
  return sha256_hex(write_placed_plan(plan, ""));
}

std::string placed_plan_to_json(const PlacedPlan& plan) {
  return write_placed_plan(plan, plan.digest);
}

bool is_placed_plan(const Json& root) {
  return root.is_object() && root.contains("format") &&
         root["format"] == kPlacedPlanFormat;
}

}  // namespace canzona

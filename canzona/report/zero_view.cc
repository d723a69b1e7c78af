#include "canzona/report/zero_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona::report {

PurposeBytes zero_bytes(const Plan& plan, const RankCost& cost, int32_t rank) {
  PurposeBytes out;
  const auto of_cost = [&](Collective collective) {
    return cost.wire[static_cast<size_t>(collective)];
  };
  if (!is_plain(plan.options.zero, plan.mesh.homes())) {
    const std::vector<PurposeBytes> modules = module_bytes(plan, rank);
    const int32_t stage = coordinates_of(plan.mesh, rank).stage;
    for (const ModuleUse& use : uses_of(usual_calls(plan, stage, 1))) {
      const PurposeBytes& module = modules[index(use.module)];
      of(out, Purpose::kGatherModule) += of(module, Purpose::kGatherModule);
      if (!use.completes()) continue;
      for (const Purpose p : {Purpose::kScatterModule, Purpose::kSumReplicas})
        of(out, p) += of(module, p);
    }
  }
  // These include the sums over replicas, which are counted separately.
  of(out, Purpose::kSum) =
      of_cost(Collective::kReduceScatter) + of_cost(Collective::kAllReduce);
  of(out, Purpose::kSum).add(of(out, Purpose::kSumReplicas), -1);
  of(out, Purpose::kGatherMatrices) = of_cost(Collective::kGather);
  of(out, Purpose::kScatterMatrices) = of_cost(Collective::kScatter);
  of(out, Purpose::kPublish) =
      of_cost(Collective::kAllGather) + of_cost(Collective::kBroadcast);
  return out;
}

WireBytes ZeroOperation::of(const PurposeBytes& bytes) const {
  WireBytes sum;
  for (const Purpose purpose : purposes) sum += plan::of(bytes, purpose);
  return sum;
}

const std::vector<ZeroOperation>& zero_operations() {
  static const std::vector<ZeroOperation> operations = {
      {"gather parameters", "gather", "micro-batch", {Purpose::kGatherModule}},
      {"scatter gradients",
       "scatter",
       "micro-batch",
       {Purpose::kScatterModule}},
      {"gradients to homes", "reduce", "step", {Purpose::kSum}},
      {"sum over replicas", "replicas", "step", {Purpose::kSumReplicas}},
      {"matrices to owners, back",
       "exchange",
       "step",
       {Purpose::kGatherMatrices, Purpose::kScatterMatrices}},
      {"new parameters", "publish", "step", {Purpose::kPublish}},
  };
  return operations;
}

bool crosses_nodes(const PlanPart& part, int32_t z) {
  const Mesh& mesh = part.mesh;
  for (int32_t stage = 0; stage < mesh.pp; ++stage)
    for (int32_t home = 0; home < mesh.homes(); home += z)
      for (int32_t t = 0; t < mesh.tp; ++t)
        if (part.node_of(mesh.rank(stage, home, t)) !=
            part.node_of(mesh.rank(stage, home + z - 1, t)))
          return true;
  return false;
}
namespace {

constexpr size_t kZeroLabel = 10;

struct ZeroFact {
  std::string name;
  std::string text;
};

const ZeroSizes& sizes_of(const PlanPart& plan) {
  return plan.options.zero.sizes;
}

std::string sizes_text(const PlanPart& plan) {
  const ZeroSizes& z = sizes_of(plan);
  return fmt::format(
      "{}: states over {}, gradients over {}, parameters over {} of {} "
      "data-parallel ranks",
      to_string(z), z.z1, z.z2, z.z3, plan.mesh.homes());
}

// "z3 groups of 4 inside a node; z2 groups of 8 cross nodes (4 ranks each)"
std::string groups_text(const PlanPart& plan) {
  std::vector<std::string> words;
  const auto add = [&](const char* name, GroupKind kind) {
    const RankGroup group = group_of(plan, 0, kind);
    const int32_t z = group.count;
    if (z == 1) return;
    const bool in_levels = levels_of(plan, group).across > 1;
    words.push_back(fmt::format("{} groups of {} {}", name, z,
                                !crosses_nodes(plan, z) ? "lie inside a node"
                                : in_levels
                                    ? "cross nodes, sending once to each"
                                    : "cross nodes"));
  };
  add("z3", GroupKind::kParameters);
  add("z2", GroupKind::kGradients);
  if (words.empty()) words.emplace_back("no tensor is cut");
  return fmt::format("{} ({} per node)", join(words, ", "),
                     counted(plan.options.ranks_per_node, "rank"));
}

std::string homes_text(const PlanPart& plan) {
  const int32_t places = plan.grid.places;
  return places == 1 ? fmt::format("{} per replica, each with whole tensors",
                                   counted(plan.grid.homes(), "home"))
                     : fmt::format(
                           "{} of {} ranks, each with a slice of every tensor; "
                           "a group computes the matrices whose home it is",
                           counted(plan.grid.homes(), "group"), places);
}

std::string pools_text(const PlanPart& plan) {
  const PoolSizes pools = pool_sizes(plan, 0);
  const int64_t bytes = size_of(plan.options.parameters);
  std::vector<std::string> words;
  if (pools.gather_slots > 0)
    words.push_back(fmt::format(
        "{} for parameters ({})",
        counted(pools.gather_slots + pools.large_gather_slots, "slot"),
        human_bytes(pools.gather_bytes(bytes))));
  if (pools.scatter_slots > 0)
    words.push_back(fmt::format(
        "{} for gradients ({})",
        counted(pools.scatter_slots + pools.large_scatter_slots, "slot"),
        human_bytes(pools.scatter_bytes())));
  return fmt::format("{}; a message is a {}", join(words, ", "),
                     to_string(plan.options.zero.message));
}

// Says what it costs that z1 is smaller than the number of data-parallel ranks.
std::string replicas_text(const PlanPart& plan,
                          const std::vector<RankCost>& ranks) {
  const int32_t replicas = plan.num_replicas();
  const Spread states = spread_over(ranks, [](const RankCost& rank) {
    return rank.memory.states.value() + rank.memory.master.value();
  });
  const Spread work = spread_over(
      ranks, [](const RankCost& rank) { return rank.transform_seconds_mean; });
  return fmt::format(
      "{}: states are stored and the step is computed {} times: {} per rank "
      "instead of {}, transforms of {} instead of {} (means, predicted)",
      replicas, replicas, bytes_text(states.mean),
      bytes_text(states.mean / replicas), human_seconds(work.mean),
      human_seconds(work.mean / replicas));
}

// Says what is unusual in the order of sums; "" if nothing is.
std::string sums_text(const PlanPart& plan) {
  std::vector<std::string> words;
  const int32_t z2 = sizes_of(plan).z2;
  const Levels levels =
      levels_of(plan, group_of(plan, 0, GroupKind::kGradients));
  if (!keeps_bits(plan))
    words.push_back(
        fmt::format("gradients are added in groups of {} that are not subtrees "
                    "of the sum over {} ranks: last digits differ from z2=1",
                    levels.across > 1 ? levels.inside : z2, plan.mesh.homes()));
  if (adds_replicas_at_once(plan))
    words.push_back(
        fmt::format("groups of all {} replicas are added at once, which keeps "
                    "the order of sums and sends more between replicas",
                    plan.num_replicas()));
  return join(words, "; ");
}

// Describes two-level sums and publishing of plain storage; "" otherwise.
std::string legs_text(const PlanPart& plan) {
  const auto text = [&](GroupKind kind, const char* what) -> std::string {
    const auto [inside, across] = levels_of(plan, 0, kind);
    if (across == 1) return "";
    return fmt::format(
        "{}once per node: sums inside groups of {}, then across {} nodes; new "
        "parameters in reverse order",
        what, inside, across);
  };
  std::vector<std::string> words;
  for (std::string& words_of : std::vector<std::string>{
           text(GroupKind::kSums, ""), text(GroupKind::kExperts, "experts ")})
    if (!words_of.empty()) words.push_back(std::move(words_of));
  return join(words, "; ");
}

// Returns the number of ranks in an operation, from the schedule's groups.
int32_t ranks_of(const PlanPart& part, const ZeroOperation& operation) {
  const Purpose purpose = operation.purposes.front();
  if (purpose == Purpose::kGatherMatrices)
    return group_of(part, 0, GroupKind::kExchange).count;
  const Buffer& buffer = part.buffers.front();
  for (const BucketCollectives& list :
       {gathers_of(part, 0), scatters_of(part, 0), sums_of(part, buffer, 0),
        publishes_of(part, buffer, 0)})
    for (const BucketCollective& c : list)
      if (c.purpose == purpose) return group_of(part, 0, c.group).count;
  return 1;
}

std::string over_text(const Plan& plan, const ZeroOperation& operation) {
  std::vector<std::string> numbers;
  for (const PlanPart& kind : kinds_of_parts(plan))
    numbers.push_back(fmt::format("{}", ranks_of(kind, operation)));
  if (numbers.front() == numbers.back()) numbers.resize(1);
  const Purpose purpose = operation.purposes.front();
  const bool in_groups =
      purpose == Purpose::kGatherModule || purpose == Purpose::kScatterModule;
  const std::string all = join(numbers, " / ");
  return in_groups ? "groups of " + all : all + " ranks";
}

std::vector<ZeroFact> facts_of(const PlanPart& plan,
                               const std::vector<RankCost>& ranks) {
  std::vector<ZeroFact> facts = {{"sizes", sizes_text(plan)},
                                 {"groups", groups_text(plan)},
                                 {"homes", homes_text(plan)}};
  if (plan.grid.places > 1) facts.push_back({"pools", pools_text(plan)});
  if (plan.num_replicas() > 1)
    facts.push_back({"replicas", replicas_text(plan, ranks)});
  std::string legs = legs_text(plan);
  if (!legs.empty()) facts.push_back({"nodes", std::move(legs)});
  std::string sums = sums_text(plan);
  if (!sums.empty()) facts.push_back({"sums", std::move(sums)});
  return facts;
}

std::string name_of_kind(const PlanPart& part) {
  return part.ep == 1
             ? part.name
             : fmt::format("experts, alike on each of {} ep coordinates",
                           part.ep);
}

// How one kind of tensors is cut.
Document cut_of(const PlanPart& plan, const ZeroSizes& sizes) {
  const PoolSizes pools = pool_sizes(plan, 0);
  Document out;
  out.set("sizes", sizes_value(sizes)).set("places", plan.grid.places);
  out.set("groups", plan.grid.homes()).set("replicas", plan.num_replicas());
  out.set("keeps_bits", keeps_bits(plan));
  out.set("replicas_at_once", adds_replicas_at_once(plan));
  out.set("z2_crosses_nodes", crosses_nodes(plan, sizes_of(plan).z2));
  out.set("z3_crosses_nodes", crosses_nodes(plan, sizes_of(plan).z3));
  out.set("gather_slots", pools.gather_slots + pools.large_gather_slots);
  return out.set("scatter_slots",
                 pools.scatter_slots + pools.large_scatter_slots);
}

}  // namespace

bool has_zero(const Plan& plan) {
  return !is_plain(plan.options.zero, plan.mesh.homes()) ||
         plan.options.zero.reach != Reach::kDirect;
}

std::string collectives_text(const Plan& plan) {
  if (plan.options.zero.reach == Reach::kPerNode)
    return fmt::format("once per node, on nodes of {}",
                       counted(plan.options.ranks_per_node, "rank"));
  const std::string why = why_direct(plan);
  return "direct: " + (why.empty() ? "no group has several ranks on each of "
                                     "several nodes"
                                   : why);
}

namespace {

// What holds for one kind of tensors.
struct ZeroFacts {
  std::string of;  // "dense tensors", "experts", or ""
  std::vector<ZeroFact> facts;
};

// An operation, with the most bytes that any rank sends in one of them.
struct ZeroRow {
  const ZeroOperation* operation = nullptr;
  std::string over;  // "groups of 4", or "groups of 4 / 2" of experts
  int64_t intra = 0;
  int64_t inter = 0;
};

std::vector<ZeroFacts> zero_facts(const ReportPlan& shown) {
  std::vector<ZeroFacts> facts;
  for (const PlanPart& part : kinds_of_parts(shown.plan))
    facts.push_back({name_of_kind(part), facts_of(part, predict(part))});
  return facts;
}

std::vector<ZeroRow> zero_rows(const ReportPlan& shown) {
  std::vector<ZeroRow> rows;
  for (const ZeroOperation& operation : zero_operations())
    rows.push_back({&operation, over_text(shown.plan, operation), 0, 0});
  for (size_t r = 0; r < shown.ranks.size(); ++r) {
    const PurposeBytes bytes =
        zero_bytes(shown.plan, shown.ranks[r], static_cast<int32_t>(r));
    for (ZeroRow& row : rows) {
      const WireBytes own = row.operation->of(bytes);
      row.intra = std::max(row.intra, own.sent_intra);
      row.inter = std::max(row.inter, own.sent_inter);
    }
  }
  std::erase_if(rows, [](const ZeroRow& row) {
    return row.intra == 0 && row.inter == 0;
  });
  return rows;
}

std::string over_heading(const Plan& plan) {
  return cuts_experts_apart(plan) ? "among, dense / experts" : "among";
}

}  // namespace

Document zero_view(const ReportPlan& shown) {
  const Plan& plan = shown.plan;
  if (!has_zero(plan)) return {};
  const ZeroOptions& zero = plan.options.zero;
  Document out = cut_of(plan.parts.front(), zero.sizes);
  out.set("message", to_string(zero.message)).set("prefetch", zero.prefetch);
  out.set("replica_sum", to_string(zero.replica_sum));
  out.set("collectives", to_string(zero.reach));
  if (cuts_experts_apart(plan))
    out.add("experts", cut_of(kinds_of_parts(plan).back(), zero.experts));
  out.title("Hierarchical ZeRO");
  Listing described;
  for (const ZeroFacts& kind : zero_facts(shown)) {
    if (!kind.of.empty()) out.line(kind.of);
    std::vector<std::array<std::string, 2>> facts;
    for (const ZeroFact& fact : kind.facts) {
      out.labelled({"", fact.name, "", fact.text}, kZeroLabel);
      facts.push_back({fact.name, fact.text});
    }
    described.add().set("of", kind.of).set("facts", facts);
  }
  const std::string among = over_heading(plan);
  Listing operations = Listing::by_name();
  for (const ZeroRow& row : zero_rows(shown))
    operations.add(row.operation->key,
                   {{"name", "<sent by a rank", row.operation->name},
                    {"each", "<each", row.operation->when},
                    {"among", "<" + among, row.over},
                    {"sent_intra_max", ">inside nodes", as_bytes(row.intra)},
                    {"sent_inter_max", ">between nodes", as_bytes(row.inter)}});
  out.table("described", described).set("among_heading", among);
  return Document().add("zero", out.table("operations", operations));
}

Value sizes_value(const ZeroSizes& sizes) {
  return {{"z1", sizes.z1}, {"z2", sizes.z2}, {"z3", sizes.z3}};
}

}  // namespace canzona::report

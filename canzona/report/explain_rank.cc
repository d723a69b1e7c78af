// Explains a rank, with what it does in an iteration.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <span>

#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/report/explain.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/report/zero_view.h"
#include "canzona/rules/facts.h"

namespace canzona::report {
namespace {

constexpr size_t kMaxMatrices = 24;
constexpr size_t kMaxEntries = 60;

// A matrix that a world rank computes.
struct OwnMatrix : MatrixInPart {
  double load = 0;  // over a period
  // "head of 4", "1 of 4", "22 of 85 blocks", "owner, with a helper", "helper
  // in refreshes"; empty: the whole matrix
  std::string team;
};

std::string place_text(TeamTable& teams, size_t matrix,
                       std::span<const MatrixShare> shares,
                       std::ptrdiff_t member) {
  const size_t count = shares.size();
  if (teams.is_in_blocks(matrix))
    return fmt::format("{} of {} blocks",
                       shares[static_cast<size_t>(member)].blocks.size(),
                       teams.blocks(matrix).count());
  if (teams.strips(matrix).has_helper()) return helper_place_text(member == 0);
  return member == 0 ? fmt::format("head of {}", count)
                     : fmt::format("{} of {}", member, count);
}

OwnMatrix owned_matrix(const PlannedRank& at, int32_t m, TeamTable& teams) {
  const PlanPart& part = *at.part;
  const size_t i = static_cast<size_t>(m);
  if (!teams.is_shared(i))
    return {{&part, m}, period_load(part, part.costs[i]), ""};
  const std::vector<MatrixShare> shares = teams.shares(i);
  const auto own =
      std::ranges::find(shares, in_grid(part, at.rank).t, &MatrixShare::t);
  return {{&part, m},
          period_load(part, own->cost),
          place_text(teams, i, shares, own - shares.begin())};
}

// Returns the matrices that `rank` computes: the most expensive first, then in
// plan order.
std::vector<OwnMatrix> owned_by(const Plan& plan, int32_t rank) {
  std::vector<OwnMatrix> owned;
  for (const PlannedRank& at : planned_ranks(plan, rank)) {
    TeamTable teams(*at.part);
    for (int32_t m = 0; m < std::ssize(at.part->matrices); ++m)
      if (computes(*at.part, at.rank, m))
        owned.push_back(owned_matrix(at, m, teams));
  }
  std::stable_sort(
      owned.begin(), owned.end(),
      [](const OwnMatrix& a, const OwnMatrix& b) { return a.load > b.load; });
  return owned;
}

// "2 of 4 in group 1 of 4, replica 0 of 2; slice 2"
std::string place_text(const PlanPart& plan, int32_t rank) {
  const Coordinates at = in_grid(plan, rank);
  return fmt::format("{} of {} in group {} of {}, replica {} of {}; slice {}",
                     at.place, plan.grid.places, at.home, plan.grid.homes(),
                     replica_of(plan, rank), plan.num_replicas(),
                     plan.grid.slice_of(at.place));
}

void add_heading(const ReportPlan& shown, int32_t rank, Document& out) {
  const Plan& plan = shown.plan;
  const RankCost& own = shown.ranks[index(rank)];
  const double load = period_load(plan, own);
  const double mean = plan.summary.mean;
  out.heading(cat("Rank ", rank), cat(" of ", plan.mesh.world(), ": ",
                                      coordinates_text(plan.mesh, rank),
                                      ", node ", node_of(plan.options, rank)));
  for (const PlannedRank& at : planned_ranks(plan, rank))
    if (has_zero(plan))
      out.text(cat("  place       ", at.part->name,
                   at.part->name.empty() ? "" : ": ",
                   place_text(*at.part, at.rank), "\n"));
  out.text(cat("  load        ", ratio_text(mean > 0 ? load / mean : 0),
               " × mean, ", cost_text(plan.cost_basis, load / plan.period),
               " predicted per step\n"));
  if (plan.period > 1)
    out.text(cat("  worst step  ", human_seconds(own.transform_seconds_worst),
                 " predicted for transforms alone\n"));
  out.text(cat("  step        ", human_seconds(own.step_seconds_mean),
               " predicted with the exchange",
               plan.period > 1 ? cat(", ", human_seconds(own.step_seconds),
                                     " without a refresh")
                               : "",
               "\n"));
}

void add_owned(const std::vector<OwnMatrix>& owned, double load,
               Document& out) {
  out.title(cat("Computes ", counted(std::ssize(owned), "matrix")));
  Listing matrices(kMaxMatrices);
  for (const OwnMatrix& one : owned) {
    const PlanPart& plan = *one.part;
    const Matrix& m = plan.matrices[index(one.matrix)];
    const double seconds =
        one.load / plan.period * plan.cost_basis.seconds_per_tick;
    const std::string name = name_of(plan, one.matrix);
    Row& row = matrices.add(
        {{"name", "~matrix", name,
          cat(printable(name), one.team.empty() ? "" : ", ", one.team)},
         {"", ">shape", dims_text({m.rows, m.cols})},
         {"bucket", ">bucket", bucket_number(plan, m.tensor)},
         {"micro_group", ">micro-group", plan.micro_group[index(one.matrix)]},
         {"load", ">cost", one.load, human_seconds(seconds)},
         {"", ">share",
          fmt::format("{:.1f} %", load > 0 ? 100 * one.load / load : 0)}});
    row.set("rows", m.rows).set("cols", m.cols);
    if (!one.team.empty()) row.set("team", one.team);
  }
  out.table("matrices", matrices);
}

// Returns the mean of this kind of memory over all ranks.
double mean_of_kind(const ReportPlan& shown, const MemoryKind& kind) {
  return spread_over(
             shown.ranks,
             [&](const RankCost& r) { return (r.memory.*kind.field).value(); })
      .mean;
}

double mean_total(const ReportPlan& shown) {
  return spread_over(shown.ranks,
                     [](const RankCost& r) { return r.memory.total().value(); })
      .mean;
}

double mean_staging(const ReportPlan& shown) {
  return spread_over(shown.ranks,
                     [](const RankCost& r) { return r.memory.staging.value(); })
      .mean;
}

int64_t activations_of(const ReportPlan& shown) {
  return shown.terms ? shown.terms->activations : 0;
}

std::string activations_note(const ReportPlan& shown) {
  return "activations: " +
         (shown.terms ? describe_activations(*shown.terms, shown.plan.mesh)
                      : "not counted");
}

void add_memory(const ReportPlan& shown, int32_t rank, Document& out) {
  const RankMemory& own = shown.ranks[index(rank)].memory;
  Listing kinds;
  Members means;
  const auto row = [&](const char* name, Bytes bytes, double mean) {
    kinds.add({{"", "<kind", name},
               {"", ">this rank", human_bytes(bytes.value())},
               {"", ">mean", bytes_text(mean)}});
  };
  for (const MemoryKind& kind : memory_kinds(shown.plan)) {
    means.push_back({kind.name, mean_of_kind(shown, kind)});
    row(kind.name, own.*kind.field, mean_of_kind(shown, kind));
  }
  const Bytes activations(activations_of(shown));
  const auto beside = static_cast<double>(activations.value());
  if (shown.terms) row("activations", activations, beside);
  row("total", own.total() + activations, mean_total(shown) + beside);
  row("staging of sums, in addition", own.staging, mean_staging(shown));
  means.push_back({"total", mean_total(shown)});
  means.push_back({"staging", mean_staging(shown)});
  out.title("Memory").table("", kinds).note(activations_note(shown));
  out.set("memory", memory_value(own)).set("mean_memory", means);
  out.set("activations_counted", activations.value() > 0);
  if (shown.terms) out.set("activations", activations_value(*shown.terms));
  out.set("counted_total", (own.total() + activations).value());
}

// Traffic of every micro-batch, in addition to the bytes per step.
struct ModuleTraffic {
  const char* name;
  const char* key;  // in JSON
  Purpose purpose;
};
constexpr std::array<ModuleTraffic, 2> kModuleTraffic = {
    {{"modules gathered, per micro-batch", "modules_gathered",
      Purpose::kGatherModule},
     {"gradients, per micro-batch", "gradients", Purpose::kScatterModule}}};

void add_wire(const ReportPlan& shown, int32_t rank, Document& out) {
  const RankCost& own = shown.ranks[index(rank)];
  Listing rows;
  add_rank_wire(own, rows);
  Members per_micro_batch;
  const PurposeBytes modules = zero_bytes(shown.plan, own, rank);
  for (const ModuleTraffic& traffic : kModuleTraffic) {
    const WireBytes& wire = of(modules, traffic.purpose);
    if (add_rank_wire(traffic.name, wire, rows))
      per_micro_batch.push_back({traffic.key, wire_value(wire)});
  }
  out.title("Bytes per step").table("", rows, "none");
  out.set("bytes", wire_value(own));
  out.set("bytes_per_micro_batch", per_micro_batch);
}

std::vector<ScheduleEntry> entries_of(const Plan& plan, int32_t rank) {
  const int32_t stage = coordinates_of(plan.mesh, rank).stage;
  return iteration_of(plan, rank, usual_calls(plan, stage, 1));
}

std::string_view level_text(BucketCollective::Level level) {
  switch (level) {
    case BucketCollective::Level::kBoth:
      return "";
    case BucketCollective::Level::kInside:
      return ", inside a node";
    case BucketCollective::Level::kAcross:
      break;
  }
  return ", across nodes";
}

// Returns "ranks 0, 8 … 56", as world ranks.
std::string members_text(const Plan& plan, const ScheduleEntry& entry) {
  const RankGroup& group = entry.ranks;
  const PlanPart& part = plan.parts[static_cast<size_t>(entry.part)];
  if (!is_collective(entry.kind)) return "";
  const auto rank = [&](int32_t i) {
    return part.rank_in_whole(group.rank(i));
  };
  if (group.count == 1) return "itself";
  const std::string level(level_text(entry.level));
  if (group.count == 2)
    return fmt::format("ranks {}, {}{}", rank(0), rank(1), level);
  return fmt::format("{} ranks: {}, {} … {}{}", group.count, rank(0), rank(1),
                     rank(group.count - 1), level);
}

constexpr const char* kOrderTitle = "An iteration of one micro-batch";
constexpr std::array<const char*, 6> kOrderColumns = {
    "in order", "with", "sent in node", "sent outside", "works on", "slot"};

// The operations of the rank in an iteration, row by row, without the calls by
// which the trainer releases a module and without stages that do nothing. Calls
// of the trainer that follow each other share a row, so that many layers do not
// hide the collectives.
struct OrderRows {
  std::vector<std::array<std::string, kOrderColumns.size()>> rows;
  size_t left_out = 0;
  bool has_helpers = false;
};

bool is_call(const ScheduleEntry& entry, TrainerCall::Kind kind) {
  return entry.kind == EntryKind::kCall && entry.call.kind == kind;
}

// Calls of the trainer that follow each other: uses of modules, or gradients
// that are complete, between which modules are used for backward.
struct Calls {
  TrainerCall::Kind kind = TrainerCall::Kind::kStep;
  int32_t first = 0, last = 0;  // modules

  bool includes(const ScheduleEntry& entry) const {
    return kind == TrainerCall::Kind::kGradReady
               ? is_call(entry, TrainerCall::Kind::kGradReady) ||
                     is_call(entry, TrainerCall::Kind::kWaitParams)
               : kind == TrainerCall::Kind::kWaitParams &&
                     is_call(entry, TrainerCall::Kind::kWaitParams);
  }
  void add(const ScheduleEntry& entry) {
    if (entry.call.kind == kind) last = entry.call.module;
  }
  std::string text(const Model& model) const {
    const std::string modules =
        cat(module_name(model, first), " … ", module_name(model, last));
    return kind == TrainerCall::Kind::kWaitParams
               ? cat("the trainer uses ", modules)
               : cat("gradients of ", modules);
  }
};

// Knows which stages of teams do nothing, and which have a helper.
class TeamStages {
 public:
  explicit TeamStages(const Plan& plan) {
    for (const PlanPart& part : plan.parts) teams_.emplace_back(part);
  }
  bool does_nothing(const ScheduleEntry& entry) {
    return entry.shared >= 0 &&
           is_idle(facts_of(entry), entry.kind, entry.purpose, entry.worked_on);
  }
  bool has_helper(const ScheduleEntry& entry) {
    return entry.shared >= 0 && facts_of(entry).has_helper();
  }

 private:
  const StripFacts& facts_of(const ScheduleEntry& entry) {
    return teams_[static_cast<size_t>(entry.part)].strips(
        static_cast<size_t>(entry.matrix));
  }

  std::vector<TeamTable> teams_;
};

OrderRows order_of(const Plan& plan, int32_t rank) {
  OrderRows out;
  Calls calls;
  TeamStages teams(plan);
  for (const ScheduleEntry& entry : entries_of(plan, rank)) {
    if (is_call(entry, TrainerCall::Kind::kReleaseParams)) continue;
    if (teams.does_nothing(entry)) continue;
    if (teams.has_helper(entry)) out.has_helpers = true;
    if (calls.includes(entry)) {
      calls.add(entry);
      if (out.left_out == 0 && calls.first != calls.last)
        out.rows.back()[0] = calls.text(plan.model);
      continue;
    }
    calls = {};
    if (entry.kind == EntryKind::kCall)
      calls = {entry.call.kind, entry.call.module, entry.call.module};
    if (out.rows.size() == kMaxEntries) {
      ++out.left_out;
      continue;
    }
    const bool moves = is_collective(entry.kind);
    out.rows.push_back(
        {describe(plan, entry), members_text(plan, entry),
         moves ? human_bytes(entry.bytes.sent_intra) : "",
         moves ? human_bytes(entry.bytes.sent_inter) : "",
         entry.worked_on > 0 ? human_bytes(entry.worked_on) : "",
         entry.slot.slot < 0 ? "" : fmt::format("{}", entry.slot.slot)});
  }
  return out;
}

void add_order(const Plan& plan, int32_t rank, Document& out) {
  const OrderRows order = order_of(plan, rank);
  out.title(kOrderTitle);
  add_order_table("~<>>>>", kOrderColumns, order, out);
  if (order.has_helpers && plan.period > 1)
    out.note(
        "a step with a refresh; in other steps owners and helpers exchange "
        "nothing");
}

// Returns what the rank stores in every part of the plan.
std::map<int32_t, Kept> kept_of(const Plan& plan, int32_t rank) {
  std::map<int32_t, Kept> kept;
  for (const RankInPart& in : parts_of_rank(plan, rank)) {
    const PlanPart& part = plan.parts[static_cast<size_t>(in.part)];
    const Coordinates at = in_grid(part, in.rank);
    kept[in.part] = kept_by(part, at, lay_out_rank(part, at));
  }
  return kept;
}

// Writes an iteration, operation by operation.
void write_order(JsonWriter& out, const Plan& plan, int32_t rank) {
  const std::map<int32_t, Kept> kept = kept_of(plan, rank);
  std::map<int32_t, int32_t> rank_in;  // by part
  for (const RankInPart& in : parts_of_rank(plan, rank))
    rank_in[in.part] = in.rank;
  TeamStages teams(plan);
  out.begin_array();
  for (const ScheduleEntry& entry : entries_of(plan, rank)) {
    out.begin_object().field("what", describe(plan, entry));
    const PlanPart& part = plan.parts[index(entry.part)];
    if (entry.kind != EntryKind::kCall)
      out.field("operation", word_of(entry.kind))
          .field("label", label_of(part, entry))
          .field("tensors", names_of(part, kept.at(entry.part), entry))
          .field("bytes",
                 bytes_of(part, rank_in[entry.part], entry, kBytesPerFp32));
    if (is_collective(entry.kind)) {
      out.member("ranks").begin_array();
      for (int32_t i = 0; i < entry.ranks.count; ++i)
        out.value(part.rank_in_whole(entry.ranks.rank(i)));
      out.end_array();
      if (entry.level != BucketCollective::Level::kBoth)
        out.field("level", entry.level == BucketCollective::Level::kInside
                               ? "inside"
                               : "across");
      write_wire_members(out, entry.bytes);
    }
    if (teams.does_nothing(entry)) out.field("does_nothing", true);
    if (entry.bucket >= 0) out.field("bucket", entry.bucket);
    if (entry.round >= 0) out.field("micro_group", entry.round);
    if (entry.slot.slot >= 0)
      out.field("slot", entry.slot.slot).field("free_after", entry.slot.freed);
    out.end_object();
  }
  out.end_array();
}

}  // namespace

Document explain_rank(const ReportPlan& shown, int32_t rank) {
  const Plan& plan = shown.plan;
  const RankCost& own = shown.ranks[index(rank)];
  const Coordinates at = coordinates_of(plan.mesh, rank);
  Document out;
  add_heading(shown, rank, out);
  out.set("rank", rank).set("dp", at.dp).set("cp", at.cp).set("tp", at.t);
  out.set("pp", at.stage).set("ep", at.ep).set("home", at.home);
  out.set("node", node_of(plan.options, rank)).set("elements", own.elements);
  out.set("load", period_load(plan, own)).set("mean", plan.summary.mean);
  out.set("predicted_transform_seconds_mean", own.transform_seconds_mean);
  out.set("predicted_transform_seconds_worst", own.transform_seconds_worst);
  out.set("predicted_element_wise_seconds", own.element_wise_seconds);
  out.set("predicted_step_seconds", own.step_seconds);
  out.set("predicted_step_seconds_mean", own.step_seconds_mean);
  add_owned(owned_by(plan, rank), period_load(plan, own), out);
  add_memory(shown, rank, out);
  add_wire(shown, rank, out);
  add_order(plan, rank, out);
  return out.set("iteration", [&plan, rank](JsonWriter& to) {
    write_order(to, plan, rank);
  });
}

Value iteration_table(const Plan& plan, int32_t rank) {
  return order_value(kOrderTitle, rank, kOrderColumns, order_of(plan, rank));
}

}  // namespace canzona::report

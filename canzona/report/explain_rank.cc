// Explains a rank, with what it does in an iteration.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <span>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/iteration.h"
#include "canzona/plan/schedule/modules.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/report/explain.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/report/terminal.h"
#include "canzona/report/zero_view.h"
#include "canzona/rules/facts.h"

namespace canzona {
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

std::string heading(const ReportPlan& shown, int32_t rank, const Ink& ink) {
  const Plan& plan = shown.plan;
  const RankCost& own = shown.ranks[static_cast<size_t>(rank)];
  const double load = period_load(plan, own);
  const double mean = plan.summary.mean;
  std::string out = ink(Tone::kBold, fmt::format("Rank {}", rank)) +
                    fmt::format(" of {}: {}, node {}\n", plan.mesh.world(),
                                coordinates_text(plan.mesh, rank),
                                node_of(plan.options, rank));
  for (const PlannedRank& at : planned_ranks(plan, rank))
    if (has_zero(plan))
      out += fmt::format("  place       {}{}{}\n", at.part->name,
                         at.part->name.empty() ? "" : ": ",
                         place_text(*at.part, at.rank));
  out += fmt::format("  load        {} × mean, {} predicted per step\n",
                     ratio_text(mean > 0 ? load / mean : 0),
                     cost_text(plan.cost_basis, load / plan.period));
  if (plan.period > 1)
    out += fmt::format("  worst step  {} predicted for transforms alone\n",
                       human_seconds(own.transform_seconds_worst));
  out += fmt::format("  step        {} predicted with the exchange",
                     human_seconds(own.step_seconds_mean));
  if (plan.period > 1)
    out +=
        fmt::format(", {} without a refresh", human_seconds(own.step_seconds));
  return out + "\n";
}

std::string owned_text(const std::vector<OwnMatrix>& owned, double load,
                       const Ink& ink) {
  Table table("~>>>>>");
  table.header({"matrix", "shape", "bucket", "micro-group", "cost", "share"});
  const size_t shown = std::min(owned.size(), kMaxMatrices);
  for (size_t i = 0; i < shown; ++i) {
    const PlanPart& plan = *owned[i].part;
    const auto at = static_cast<size_t>(owned[i].matrix);
    const Matrix& m = plan.matrices[at];
    const double cost = owned[i].load;
    const double seconds =
        cost / plan.period * plan.cost_basis.seconds_per_tick;
    const std::string& team = owned[i].team;
    table.row({printable(name_of(plan, owned[i].matrix)) +
                   (team.empty() ? "" : ", " + team),
               dims_text({m.rows, m.cols}),
               fmt::format("{}", bucket_number(plan, m.tensor)),
               fmt::format("{}", plan.micro_group[at]), human_seconds(seconds),
               fmt::format("{:.1f} %", load > 0 ? 100 * cost / load : 0)});
  }
  std::string out = title(
      ink, fmt::format("Computes {}", counted(std::ssize(owned), "matrix")));
  if (!owned.empty()) out += table.text(ink);
  return out + left_out_text(owned.size() - shown, ink);
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

std::string memory_of(const ReportPlan& shown, int32_t rank, const Ink& ink) {
  const RankMemory& own = shown.ranks[static_cast<size_t>(rank)].memory;
  Table table("<>>");
  table.header({"kind", "this rank", "mean"});
  const auto row = [&](const char* name, Bytes bytes, double mean) {
    table.row({name, human_bytes(bytes.value()), bytes_text(mean)});
  };
  for (const MemoryKind& kind : memory_kinds(shown.plan))
    row(kind.name, own.*kind.field, mean_of_kind(shown, kind));
  const Bytes activations(activations_of(shown));
  const auto beside = static_cast<double>(activations.value());
  if (shown.terms) row("activations", activations, beside);
  row("total", own.total() + activations, mean_total(shown) + beside);
  row("staging of sums, in addition", own.staging, mean_staging(shown));
  return title(ink, "Memory") + table.text(ink) + "  " +
         ink(Tone::kDim, wrap(activations_note(shown), kPageWidth - 2, 2)) +
         "\n";
}

// Writes the members of write_memory() for the mean over all ranks.
void write_mean_memory(JsonWriter& out, const ReportPlan& shown) {
  out.member("mean_memory").begin_object();
  for (const MemoryKind& kind : memory_kinds(shown.plan))
    out.field(kind.name, mean_of_kind(shown, kind));
  out.field("total", mean_total(shown));
  out.field("staging", mean_staging(shown)).end_object();
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

void write_module_traffic(JsonWriter& out, const PurposeBytes& bytes) {
  out.member("bytes_per_micro_batch").begin_object();
  for (const ModuleTraffic& traffic : kModuleTraffic) {
    const WireBytes& wire = of(bytes, traffic.purpose);
    if (wire.sent() == 0 && wire.received() == 0) continue;
    out.member(traffic.key).begin_object();
    write_wire_members(out, wire);
    out.end_object();
  }
  out.end_object();
}

std::string wire_of(const ReportPlan& shown, int32_t rank, const Ink& ink) {
  const RankCost& own = shown.ranks[static_cast<size_t>(rank)];
  Table table("<>>>>");
  table.header({"collective", "sent in node", "sent outside",
                "received in node", "received outside"});
  const auto add = [&](std::string name, const WireBytes& w) {
    if (w.sent() == 0 && w.received() == 0) return;
    table.row({std::move(name), human_bytes(w.sent_intra),
               human_bytes(w.sent_inter), human_bytes(w.received_intra),
               human_bytes(w.received_inter)});
  };
  for (int c = 0; c < kNumCollectives; ++c)
    add(std::string(to_string(static_cast<Collective>(c))),
        own.wire[static_cast<size_t>(c)]);
  const PurposeBytes modules = zero_bytes(shown.plan, own, rank);
  for (const ModuleTraffic& traffic : kModuleTraffic)
    add(traffic.name, of(modules, traffic.purpose));
  const std::string body = table.empty() ? "  none\n" : table.text(ink);
  return title(ink, "Bytes per step") + body;
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

std::string order_text(const Plan& plan, int32_t rank, const Ink& ink) {
  Table table("~<>>>>");
  table.header({kOrderColumns.begin(), kOrderColumns.end()});
  const OrderRows order = order_of(plan, rank);
  for (const auto& row : order.rows) table.row({row.begin(), row.end()});
  std::string out = title(ink, kOrderTitle) + table.text(ink);
  out += left_out_text(order.left_out, ink);
  if (order.has_helpers && plan.period > 1)
    out += "  " +
           ink(Tone::kDim,
               "a step with a refresh; in other steps owners and helpers "
               "exchange nothing") +
           "\n";
  return out;
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

void write_order(JsonWriter& out, const Plan& plan, int32_t rank) {
  const std::map<int32_t, Kept> kept = kept_of(plan, rank);
  std::map<int32_t, int32_t> rank_in;  // by part
  for (const RankInPart& in : parts_of_rank(plan, rank))
    rank_in[in.part] = in.rank;
  TeamStages teams(plan);
  out.member("iteration").begin_array();
  for (const ScheduleEntry& entry : entries_of(plan, rank)) {
    out.begin_object().field("what", describe(plan, entry));
    const PlanPart& part = plan.parts[static_cast<size_t>(entry.part)];
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

void write_owned(JsonWriter& out, const std::vector<OwnMatrix>& owned) {
  out.member("matrices").begin_array();
  for (const OwnMatrix& one : owned) {
    const PlanPart& plan = *one.part;
    const auto at = static_cast<size_t>(one.matrix);
    const Matrix& m = plan.matrices[at];
    out.begin_object().field("name", name_of(plan, one.matrix));
    out.field("rows", m.rows).field("cols", m.cols);
    out.field("bucket", bucket_number(plan, m.tensor));
    out.field("micro_group", plan.micro_group[at]);
    if (!one.team.empty()) out.field("team", one.team);
    out.field("load", one.load).end_object();
  }
  out.end_array();
}

}  // namespace

std::string explain_rank(const ReportPlan& shown, int32_t rank,
                         const Ink& ink) {
  const RankCost& own = shown.ranks[static_cast<size_t>(rank)];
  return heading(shown, rank, ink) +
         owned_text(owned_by(shown.plan, rank), period_load(shown.plan, own),
                    ink) +
         memory_of(shown, rank, ink) + wire_of(shown, rank, ink) +
         order_text(shown.plan, rank, ink);
}

std::string explain_rank_json(const ReportPlan& shown, int32_t rank) {
  const Plan& plan = shown.plan;
  const RankCost& own = shown.ranks[static_cast<size_t>(rank)];
  const Coordinates at = coordinates_of(plan.mesh, rank);
  JsonWriter out(2);
  out.begin_object().field("rank", rank);
  out.field("dp", at.dp).field("cp", at.cp).field("tp", at.t);
  out.field("pp", at.stage).field("ep", at.ep).field("home", at.home);
  out.field("node", node_of(plan.options, rank));
  out.field("load", period_load(plan, own)).field("mean", plan.summary.mean);
  out.field("elements", own.elements);
  out.field("predicted_transform_seconds_mean", own.transform_seconds_mean);
  out.field("predicted_transform_seconds_worst", own.transform_seconds_worst);
  out.field("predicted_element_wise_seconds", own.element_wise_seconds);
  out.field("predicted_step_seconds", own.step_seconds);
  out.field("predicted_step_seconds_mean", own.step_seconds_mean);
  write_owned(out, owned_by(plan, rank));
  out.member("memory");
  write_memory(out, own.memory);
  write_mean_memory(out, shown);
  out.field("activations_counted", activations_of(shown) > 0);
  if (shown.terms) write_activations(out.member("activations"), *shown.terms);
  out.field("counted_total",
            own.memory.total().value() + activations_of(shown));
  out.member("bytes");
  write_wire(out, own);
  write_module_traffic(out, zero_bytes(plan, own, rank));
  write_order(out, plan, rank);
  out.end_object();
  return out.take() + "\n";
}

void write_iteration_table(JsonWriter& out, const Plan& plan, int32_t rank) {
  write_order_table(out, kOrderTitle, rank, kOrderColumns,
                    order_of(plan, rank));
}

}  // namespace canzona

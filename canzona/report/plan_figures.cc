#include "canzona/report/plan_figures.h"

#include <algorithm>
#include <array>
#include <map>

#include "canzona/base/text.h"
#include "canzona/report/explain.h"
#include "canzona/report/team_view.h"
#include "canzona/rules/facts.h"

namespace canzona::report {
namespace {

// More columns than there are pixels would show nothing.
constexpr size_t kMaxMemoryColumns = 1024;
// Only this many homes get a colour of their own.
constexpr int32_t kMaxNamedHomes = 6;
constexpr size_t kMaxDrawnRounds = 48;
constexpr size_t kMaxDrawnBlocks = 2000;

// The moment at which a collective runs, and its axis.
constexpr std::array kWhen = {"backward, over dp", "backward, over dp",
                              "step, over tp",     "step, over tp",
                              "forward, over dp",  "step, over dp",
                              "step, in teams",    "step, in teams"};
static_assert(kWhen.size() == kNumCollectives);

Value wire_spread(const ReportPlan& shown) {
  Members out;
  for (size_t c = 0; c < kNumCollectives; ++c) {
    const auto spread = [&](int64_t WireBytes::*link) {
      return spread_over(shown.ranks, [&](const RankCost& rank) {
        return rank.wire[c].*link;
      });
    };
    const Spread intra = spread(&WireBytes::sent_intra);
    const Spread inter = spread(&WireBytes::sent_inter);
    if (intra.max <= 0 && inter.max <= 0) continue;
    out.push_back({std::string(to_string(static_cast<Collective>(c))),
                   {{"when", kWhen[c]},
                    {"sent_intra_max", intra.max},
                    {"sent_intra_mean", intra.mean},
                    {"sent_inter_max", inter.max},
                    {"sent_inter_mean", inter.mean}}});
  }
  return out;
}

// A row is a rank, or the fullest of an equal run of ranks.
Value memory_columns(const ReportPlan& shown) {
  const std::vector<MemoryKind> kinds = memory_kinds(shown.plan);
  std::vector<std::string> columns = {"rank"};
  for (const MemoryKind& kind : kinds) columns.push_back(kind.name);
  std::vector<std::vector<int64_t>> rows;
  const size_t count = shown.ranks.size();
  const size_t run = (count + kMaxMemoryColumns - 1) / kMaxMemoryColumns;
  for (size_t first = 0; first < count; first += run) {
    size_t best = first;
    for (size_t r = first; r < std::min(first + run, count); ++r)
      if (shown.ranks[r].memory.total() > shown.ranks[best].memory.total())
        best = r;
    rows.push_back({static_cast<int64_t>(best)});
    for (const MemoryKind& kind : kinds)
      rows.back().push_back((shown.ranks[best].memory.*kind.field).value());
  }
  return {{"columns", columns}, {"rows", rows}};
}

// Returns a tensor's home among all homes of its stage, or kEveryHome.
int32_t home_of(const PlanPart& plan, int32_t tensor) {
  const int32_t home = plan.home[static_cast<size_t>(tensor)];
  if (home == kEveryHome) return kEveryHome;
  return plan.stage_home(plan.buffer_of(tensor), home);
}

int32_t stage_of_bucket(const PlanPart& plan, const Bucket& bucket) {
  return plan.buffers[static_cast<size_t>(bucket.buffer)].stage;
}

Value bucket_value(const PlanPart& plan, size_t b) {
  const Bucket& bucket = plan.buckets[b];
  const Buffer& buffer = plan.buffers[index(bucket.buffer)];
  // Consecutive tensors with one home: [home, tensors, elements].
  std::vector<std::array<int64_t, 3>> runs;
  int64_t adamw = 0;
  for (size_t i = 0; i < bucket.tensors.size(); ++i) {
    const int32_t tensor = bucket.tensors[i];
    const int64_t elements =
        shard_elements(plan.mesh, plan.model.tensors[index(tensor)]);
    if (i >= index(bucket.num_matrix_tensors)) {
      adamw += elements;
      continue;
    }
    const int32_t home = home_of(plan, tensor);
    if (runs.empty() || runs.back()[0] != home) runs.push_back({home, 0, 0});
    ++runs.back()[1];
    runs.back()[2] += elements;
  }
  return {{"number", index(plan.first_bucket) + b},
          {"stage", buffer.stage},
          {"ep", buffer.ep},
          {"homes", buffer.num_homes},
          {"adamw_elements", adamw},
          {"runs", runs}};
}

// The ranks of every home, if they do not follow from the mesh.
std::vector<std::string> home_ranks(const PlanPart& plan) {
  if (plan.ep == 1 || plan.mesh.pp > 1 || plan.model.tensors.empty() ||
      plan.grid.homes() > kMaxNamedHomes)
    return {};
  std::vector<std::string> out;
  for (int32_t h = 0; h < plan.grid.homes(); ++h)
    out.push_back(ranks_text(ranks_of_home(plan, 0, h)));
  return out;
}

// Returns the cost of a matrix per step, with its share of the refreshes.
double mean_cost(const SettledRequest& plan, size_t matrix) {
  return period_load(plan, plan.costs[matrix]) / plan.period;
}

bool lives_at(const PlanPart& plan, const Matrix& matrix,
              const Coordinates& at) {
  const Bucket& bucket = plan.buckets[static_cast<size_t>(
      plan.bucket_of[static_cast<size_t>(matrix.tensor)])];
  const int32_t home = home_of(plan, matrix.tensor);
  return stage_of_bucket(plan, bucket) == at.stage &&
         (home == at.home || home == kEveryHome);
}

void add_block(const PlanPart& plan, size_t m, TeamTable& teams,
               DrawnRound& round) {
  const auto owners = plan.owners[m];
  const double cost = mean_cost(plan, m);
  if (owners.empty()) {  // every tp rank repeats it
    for (auto& blocks : round.blocks) blocks.push_back({m, cost});
    return;
  }
  if (!teams.is_shared(m)) {
    round.blocks[static_cast<size_t>(owners[0])].push_back({m, cost});
    return;
  }
  for (const MatrixShare& share : teams.shares(m))
    round.blocks[static_cast<size_t>(share.t)].push_back(
        {m, period_load(plan, share.cost) / plan.period});
}

// Numbers distinct values in the order of their first occurrence.
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

// [name, tensor, rows, cols, tp coordinates of the ranks that share it, a
// team's head first, whether its blocks have owners, whether the second of the
// ranks is a helper].
void write_matrix(JsonWriter& out, const PlanPart& plan, size_t m) {
  const Matrix& matrix = plan.matrices[m];
  out.begin_array();
  out.value(matrix_name(plan.model, matrix, plan.options.splits));
  out.value(plan.model.tensors[static_cast<size_t>(matrix.tensor)].name);
  out.value(matrix.rows).value(matrix.cols).begin_array();
  TeamTable teams(plan);
  if (teams.is_shared(m))
    for (const int32_t t : distinct(plan.owners[m])) out.value(t);
  out.end_array().value(teams.is_in_blocks(m));
  out.value(teams.is_team(m) && teams.strips(m).has_helper()).end_array();
}

// Writes blocks as [number in `matrices`, ticks], by whole rounds, until there
// are enough to draw.
void write_rounds(JsonWriter& out, const PlannedRank& at) {
  const PlanPart& plan = *at.part;
  const std::vector<DrawnRound> rounds =
      rounds_of(plan, in_grid(plan, at.rank));
  Numbered<size_t> matrices;
  size_t drawn = 0, blocks = 0;
  out.begin_object().field("part", plan.name).field("tp", plan.grid.tp);
  out.field("num_rounds", rounds.size()).member("rounds").begin_array();
  for (; drawn < std::min(rounds.size(), kMaxDrawnRounds) &&
         blocks < kMaxDrawnBlocks;
       ++drawn) {
    out.begin_object().field("number", rounds[drawn].number);
    out.member("blocks").begin_array();
    for (const auto& of_rank : rounds[drawn].blocks) {
      out.begin_array();
      for (const Block& block : of_rank)
        out.begin_array()
            .value(matrices.number_of(block.matrix))
            .value(block.cost)
            .end_array();
      out.end_array();
      blocks += of_rank.size();
    }
    out.end_array().end_object();
  }
  out.end_array().member("matrices").begin_array();
  for (const size_t m : matrices.values()) write_matrix(out, plan, m);
  out.end_array().end_object();
}

// Teams by shape and size: how many there are, and what the head and a member
// do in one.
Value team_shapes(const Plan& plan) {
  std::map<std::pair<MatrixShape, size_t>, std::pair<int64_t, TeamStory>> kinds;
  for (const PlanPart& part : plan.parts) {
    for (size_t m = 0; m < part.matrices.size(); ++m) {
      if (part.owners[m].size() < 2) continue;
      const Matrix& matrix = part.matrices[m];
      auto& [count, story] =
          kinds[{shape_of(matrix), distinct(part.owners[m]).size()}];
      if (count++ == 0) story = *team_of(part, static_cast<int32_t>(m));
    }
  }
  Listing out;
  for (const auto& [kind, counted_story] : kinds) {
    const auto& [count, story] = counted_story;
    const TeamMember& head = story.members.front();
    const TeamMember& member = story.members.back();
    Row& row = out.add().set("rows", kind.first.rows);
    row.set("cols", kind.first.cols).set("teams", count);
    row.set("ranks", kind.second).set("strips", story.strips);
    row.set("strips_of_each", head.num_strips);
    row.set("of_each", share_text(story, head));
    row.set("head_ticks", head.work.value());
    row.set("member_ticks", member.work.value());
    row.set("head_receives_sums", head.inside.sums_received);
    row.set("member_receives_factors", member.inside.factors_received);
    if (!story.has_helper) continue;
    row.set("helper", true).set("helped_side", story.helped_side);
    row.set("owner_refresh_ticks", head.refresh.value());
    row.set("helper_refresh_ticks", member.refresh.value());
    row.set("helper_receives_triangle", member.inside.sums_received);
    row.set("owner_receives_factor", head.inside.factors_received);
  }
  return out.value();
}

struct Kind {
  std::vector<int64_t> shape;
  Role role = Role::kMatrix;
  Cut cut = Cut::kNone;
  bool matrix_rule = false;
  double cost = 0;
  friend auto operator<=>(const Kind&, const Kind&) = default;
};

// Returns the ticks of all matrices of a tensor, as a mean over a period.
double cost_of_tensor(const SettledRequest& plan, int32_t tensor) {
  const auto at = static_cast<size_t>(tensor);
  double cost = 0;
  for (int32_t m = plan.first_matrix[at]; m < plan.first_matrix[at + 1]; ++m)
    cost += mean_cost(plan, static_cast<size_t>(m));
  return cost;
}

// Returns the label before the home of an expert that is planned in a part of
// its own: "ep 1".
std::string part_label(const PlanPart& part) {
  if (!part.of_experts) return "";
  return part.ep > 1 ? cat("ep ", part.e) : "experts";
}

class TensorTable {
 public:
  TensorTable(JsonWriter& out, const Plan& plan) : out_(out), plan_(plan) {}

  void write() {
    out_.begin_object().field("stages", plan_.mesh.pp);
    write_parts();
    out_.member("rows").begin_array();
    const auto count = static_cast<int32_t>(plan_.model.tensors.size());
    for (int32_t tensor = 0; tensor < count; ++tensor) write_row(tensor);
    // Patterns and kinds are complete only once all rows are written.
    out_.end_array().member("patterns").begin_array();
    for (const auto& pieces : patterns_.values()) out_.values(pieces);
    out_.end_array().member("kinds").begin_array();
    for (const Kind& kind : kinds_.values()) write_kind(kind);
    out_.end_array().end_object();
  }

 private:
  void write_row(int32_t tensor) {
    const Tensor& it = plan_.model.tensors[static_cast<size_t>(tensor)];
    const PlannedTensor at = planned_tensor(plan_, tensor);
    NameParts parts = split_name(it.name);
    out_.begin_array();
    out_.value(patterns_.number_of(std::move(parts.pieces)));
    out_.value(kinds_.number_of({it.shape, it.role, it.cut, it.matrix_rule,
                                 cost_of_tensor(plan_, tensor)}));
    out_.value(bucket_number(*at.part, at.tensor));
    out_.value(home_of(*at.part, at.tensor));
    const std::vector<int32_t> owners = owners_of_tensor(*at.part, at.tensor);
    if (owners.size() > 1)
      out_.values(owners);
    else
      out_.value(owners.empty() ? -1 : owners[0]);
    for (int64_t number : parts.numbers) out_.value(number);
    out_.end_array();
  }

  void write_parts() {
    const Mesh& mesh = plan_.mesh;
    out_.member("mesh").values(std::vector<int32_t>{mesh.tp, mesh.cp, mesh.ep});
    out_.member("parts").begin_array();
    for (const PlanPart& part : plan_.parts) {
      // The number of homes includes those of all replicas.
      out_.begin_array().value(part.grid.tp);
      out_.value(part.mesh.ranks_per_stage() / part.grid.tp);
      out_.value(part.ep > 1 ? part.e : -1);
      out_.value(part_label(part)).end_array();
    }
    out_.end_array().member("buckets").begin_array();
    for (size_t i = 0; i < plan_.parts.size(); ++i)
      for (const Bucket& bucket : plan_.parts[i].buckets) {
        out_.begin_array().value(stage_of_bucket(plan_.parts[i], bucket));
        out_.value(i).end_array();
      }
    out_.end_array();
  }

  void write_kind(const Kind& kind) {
    int64_t bytes = size_of(plan_.options.parameters);
    for (int64_t dim : kind.shape) bytes *= dim;
    out_.begin_array().values(kind.shape);
    out_.value(to_string(kind.role)).value(to_string(kind.cut));
    out_.value(kind.matrix_rule ? plan_.rule : kElementRule);
    out_.value(kind.cost).value(bytes).value(kind.matrix_rule).end_array();
  }

  JsonWriter& out_;
  const Plan& plan_;
  Numbered<std::vector<std::string>> patterns_;
  Numbered<Kind> kinds_;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

Document spread_members(const ReportPlan& shown) {
  Document out;
  out.set("loads", period_loads(shown.plan, shown.ranks));
  out.set("fullest_rank", memory_value(fullest_memory(shown.ranks)));
  return out.set("wire", wire_spread(shown));
}

Document plan_figures(const ReportPlan& shown) {
  const Plan& plan = shown.plan;
  const int32_t rank = busiest_rank(shown);
  Document out = spread_members(shown);
  out.set("busiest_rank", rank);
  out.set("memory_by_rank", memory_columns(shown));
  out.set("buckets", buckets_value(shown));
  std::vector<Value> micro_groups;
  if (!plan.matrices.empty())
    for (const PlannedRank& at : planned_ranks(plan, rank))
      micro_groups.emplace_back([at](JsonWriter& to) { write_rounds(to, at); });
  out.set("micro_groups", micro_groups);
  if (may_have_teams(plan)) {
    out.set("teams_text", describe_teams(plan));
    out.set("team_shapes", team_shapes(plan));
  }
  out.set("order", [&plan, rank](JsonWriter& to) {
    iteration_table(plan, rank).write(to);
  });
  return out.set("tensors", [&](JsonWriter& to) { write_tensors(to, plan); });
}

Value buckets_value(const ReportPlan& shown) {
  Listing out;
  for (const PlannedRank& at : planned_ranks(shown.plan, busiest_rank(shown))) {
    const PlanPart& part = *at.part;
    std::vector<Value> rows;
    for (size_t b = 0; b < part.buckets.size(); ++b)
      rows.push_back(bucket_value(part, b));
    Row& row = out.add().set("part", part.name).set("apart", part.ep > 1);
    row.set("homes", part.grid.homes()).set("ep", part.mesh.ep);
    row.set("repeated", part.traffic == Traffic::kAllReduce);
    if (const auto ranks = home_ranks(part); !ranks.empty())
      row.set("home_ranks", ranks);
    row.set("rows", rows);
  }
  return out.value();
}

void write_tensors(JsonWriter& out, const Plan& plan) {
  TensorTable(out, plan).write();
}

int32_t busiest_rank(const ReportPlan& shown) {
  return spread_of(period_loads(shown.plan, shown.ranks)).largest;
}

std::vector<DrawnRound> rounds_of(const PlanPart& plan, const Coordinates& at) {
  std::map<int32_t, DrawnRound> rounds;
  TeamTable teams(plan);
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    if (!lives_at(plan, plan.matrices[m], at)) continue;
    DrawnRound& round = rounds[plan.micro_group[m]];
    round.number = plan.micro_group[m];
    round.blocks.resize(static_cast<size_t>(plan.grid.tp));
    add_block(plan, m, teams, round);
  }
  std::vector<DrawnRound> out;
  for (auto& [number, round] : rounds) out.push_back(std::move(round));
  return out;
}

NameParts split_name(std::string_view name) {
  constexpr size_t kMaxDigits = 9;
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

}  // namespace canzona::report

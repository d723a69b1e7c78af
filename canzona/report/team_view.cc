#include "canzona/report/team_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/predict/summary.h"
#include "canzona/plan/schedule/routes.h"
#include "canzona/plan/search/teams.h"
#include "canzona/report/shown_plan.h"

namespace canzona::report {
namespace {

std::string not_worth_it(const PlanOptions& options) {
  return cat(
      "whole owners are within 3 % of the bound with teams, or teams would not "
      "shorten the predicted step by 3 %",
      options.memory_cap_bytes > 0 ? ", or would not fit the memory cap" : "");
}

// Says that a time is one of a whole period, where there are refreshes.
std::string per_period(const SettledRequest& plan) {
  return plan.period == 1
             ? ""
             : fmt::format(" in a period of {} steps", plan.period);
}

// Counts the bytes of a member's strips that other ranks store, and of the
// updates it returns.
void count_routes(const PlanPart& part, int32_t matrix, int32_t t,
                  TeamMember& member) {
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  const Matrix& m = part.matrices[index(matrix)];
  const Tensor& tensor = part.model.tensors[index(m.tensor)];
  const std::vector<int64_t> elements =
      elements_within(part, matrix, member.rectangles);
  for (int32_t from = 0; from < part.grid.tp; ++from) {
    if (from == t) continue;
    const int64_t own = elements[index(from)];
    if (sends_to(part.grid, tensor, from, t))
      member.gathered += Bytes(own * rule->gather_bytes_per_element());
    member.scattered += Bytes(own * rule->scatter_bytes_per_element());
  }
}

}  // namespace

bool may_have_teams(const SettledRequest& plan) {
  return plan.options.teams != kTeamsOff;
}

namespace {

// Returns the side of a matrix whose triangle has this many elements; 0 if
// neither has.
int64_t side_of_triangle(const Matrix& matrix, int64_t elements) {
  for (const int64_t side : {matrix.rows, matrix.cols})
    if (side * (side + 1) / 2 == elements) return side;
  return 0;
}

void add_strips(TeamTable& teams, const PlanPart& part, size_t m,
                TeamStory& story) {
  const StripFacts& facts = teams.strips(m);
  const TeamSize cost = teams.of(m);
  story.strips = facts.strips;
  story.has_helper = facts.has_helper();
  story.segments = facts.segments;
  if (story.has_helper)
    story.helped_side = side_of_triangle(part.matrices[m], facts.sum_elements);
  story.path = Ticks(cost.path);
  story.refresh_path = Ticks(teams.refresh(m).path);
  for (int32_t i = 0; i < cost.size; ++i) {
    TeamMember& member = story.members[index(i)];
    member.num_strips = facts.strips / cost.size;
    if (facts.has_helper()) member.num_strips = i == 0 ? 1 : 0;
    member.first_strip = i * member.num_strips;
    member.inside = team_bytes(facts, cost.size, i);
  }
}

}  // namespace

std::optional<TeamStory> team_of(const PlanPart& part, int32_t matrix) {
  const size_t m = index(matrix);
  TeamTable teams(part);
  if (!teams.is_shared(m)) return std::nullopt;
  const int32_t tensor = part.matrices[m].tensor;
  TeamStory story;
  for (MatrixShare& share : teams.shares(m)) {
    TeamMember& member = story.members.emplace_back();
    member.rank = rank_of(part, tensor, part.home[index(tensor)], share.t);
    member.blocks = std::move(share.blocks);
    member.rectangles = std::move(share.rectangles);
    member.work = share.cost.every_step;
    member.refresh = share.cost.refresh;
    count_routes(part, matrix, share.t, member);
  }
  if (teams.is_team(m))
    add_strips(teams, part, m, story);
  else
    story.blocks = teams.blocks(m).count();
  return story;
}

std::string helper_place_text(bool is_owner) {
  return is_owner ? "owner, with a helper" : "helper in refreshes";
}

std::string share_text(const TeamStory& team, const TeamMember& member) {
  if (!team.has_head())
    return fmt::format("{} of {} blocks", member.blocks.size(), team.blocks);
  if (team.has_helper) return helper_place_text(member.num_strips > 0);
  return fmt::format("{} of {} strips", member.num_strips, team.strips);
}

TeamReasons::TeamReasons(const Plan& plan) : plan_(plan) {
  if (!may_have_teams(plan)) return;
  const auto rule = make_rule_facts(plan.rule, plan.rule_options);
  none_ = why_no_teams(plan, *rule);
  if (none_.empty() && teams_by_size(plan).empty())
    none_ = not_worth_it(plan.options);
  for (const PlanPart& part : plan.parts) tables_.emplace_back(part);
}

std::string TeamReasons::of(int32_t matrix) {
  if (!may_have_teams(plan_)) return "";
  if (!none_.empty()) return "No team: " + none_ + ".";
  const auto [part, number] = matrix_in_part(plan_, matrix);
  const size_t m = index(number);
  const auto ticks = [&](double count) {
    return cost_text(plan_.cost_basis, count);
  };
  const auto whole = [&](int64_t count) {
    return ticks(static_cast<double>(count));
  };
  TeamTable& teams = tables_[static_cast<size_t>(part - plan_.parts.data())];
  const double alone = period_load(plan_, part->costs[m]);
  if (teams.is_in_blocks(m)) {
    double most = 0;
    const std::vector<MatrixShare> shares = teams.shares(m);
    for (const MatrixShare& share : shares)
      most = std::max(most, period_load(plan_, share.cost));
    return fmt::format(
        "Its {} blocks are independent and owned by {} ranks: one rank would "
        "take {}{}, each of them takes at most {}.",
        teams.blocks(m).count(), shares.size(), ticks(alone), per_period(plan_),
        ticks(most));
  }
  if (teams.size(m) > 1 && teams.strips(m).has_helper())
    return fmt::format(
        "A helper: in a refresh one rank would take {} more; with the helper, "
        "the owner is done after {}, including the transfer of the statistics "
        "and of what the helper finds.",
        whole(part->costs[m].refresh.value()), whole(teams.refresh(m).path));
  if (const int32_t size = teams.size(m); size > 1)
    return fmt::format(
        "A team of {}: one rank would take {}{}; with the team, the head is "
        "done after {}, including the transfer of sums and factors.",
        size, ticks(alone), per_period(plan_),
        whole(teams.over_period(m).path));
  const bool in_blocks = teams.blocks(m).fall_apart();
  if (!in_blocks && teams.strips(m).most_ranks() == 1)
    return "No team: this shape has one strip.";
  return fmt::format(
      "No team: one rank takes {}{}, which fits within the makespan of {}.",
      ticks(alone), per_period(plan_), whole(plan_.summary.makespan.value()));
}

std::string describe_teams(const Plan& plan) {
  if (!may_have_teams(plan)) return "off";
  const auto rule = make_rule_facts(plan.rule, plan.rule_options);
  if (const std::string none = why_no_teams(plan, *rule); !none.empty())
    return "none: " + none;
  const std::map<int32_t, int64_t> sizes = teams_by_size(plan);
  if (sizes.empty()) return cat("none: ", not_worth_it(plan.options));
  int64_t shared = 0;
  std::vector<std::string> words;
  for (const auto& [size, count] : sizes) {
    shared += count;
    words.push_back(fmt::format("{} by {} ranks", grouped(count), size));
  }
  return fmt::format("{} of {} {} shared{}: {}", grouped(shared),
                     grouped(std::ssize(plan.matrices)),
                     plan.matrices.size() == 1 ? "matrix is" : "matrices are",
                     has_blocks(plan, *rule) ? ", block by block" : "",
                     join(words, ", "));
}

namespace {

Field ticks_field(const CostBasis& basis, const char* key, const char* heading,
                  Ticks ticks) {
  return {key, heading, ticks.value(),
          human_seconds(static_cast<double>(ticks.value()) *
                        basis.seconds_per_tick)};
}

// What a member of a team with a head has, and which strips.
void add_strips(const TeamStory& team, const TeamMember& m, Row& row) {
  const bool is_head = &m == &team.members.front();
  const int32_t last = m.first_strip + m.num_strips - 1;
  row.add({"rank", "<team", m.rank,
           cat("rank ", m.rank,
               team.has_helper ? (is_head ? ", owner" : ", helper")
               : is_head       ? ", head"
                               : "")});
  if (!team.has_helper)
    row.add({"", "<strips",
             cat(m.first_strip, m.num_strips == 1 ? "" : cat(" to ", last),
                 " of ", team.strips)});
  row.set("first_strip", m.first_strip).set("num_strips", m.num_strips);
  const Rectangle& own = m.rectangles.front();
  row.set("first_row", own.first_row).set("num_rows", own.num_rows);
  row.set("first_col", own.first_col).set("num_cols", own.num_cols);
}

void add_inside(const TeamStory& team, const TeamBytes& bytes, Row& row) {
  row.add({"sum_bytes_received", team.has_helper ? ">triangle in" : ">sums in",
           as_bytes(bytes.sums_received)});
  row.add({"factor_bytes_received",
           team.has_helper ? ">factor in" : ">factors in",
           as_bytes(bytes.factors_received)});
  row.set("sum_bytes_sent", bytes.sums_sent);
  row.set("factor_bytes_sent", bytes.factors_sent);
}

}  // namespace

Document team_view(const SettledRequest& plan, const TeamStory& team,
                   size_t indent) {
  const bool refreshes = team.refresh_path > Ticks(0) || !team.has_head();
  const bool shows_refresh = team.has_helper || !team.has_head();
  Listing members;
  for (const TeamMember& m : team.members) {
    Row& row = members.add();
    if (team.has_head())
      add_strips(team, m, row);
    else
      row.add({"rank", "<owner", m.rank, cat("rank ", m.rank)})
          .add({"blocks", "<blocks", m.blocks,
                cat(m.blocks.size(), " of ", team.blocks)});
    row.add(ticks_field(plan.cost_basis, "work", ">work", m.work));
    row.add(ticks_field(plan.cost_basis, refreshes ? "refresh" : "",
                        shows_refresh ? ">refresh" : "", m.refresh));
    row.add({"gather_bytes", ">gather", as_bytes(m.gathered.value())});
    row.add({"scatter_bytes", ">scatter", as_bytes(m.scattered.value())});
    if (team.has_head()) add_inside(team, m.inside, row);
  }
  Document out;
  out.table("members", members, "", indent);
  if (!team.has_head()) return out.set("blocks", team.blocks);
  out.set("strips", team.strips).set("segments", team.segments);
  out.set("path", team.path.value());
  if (team.has_helper)
    out.set("helper", true).set("helped_side", team.helped_side);
  if (refreshes) out.set("refresh_path", team.refresh_path.value());
  return out;
}

Value teams_value(const Plan& plan) {
  std::map<int32_t, int64_t> sizes = teams_by_size(plan);
  for (const int32_t size : {2, 4, 8}) sizes.try_emplace(size, 0);
  Members out;
  for (const auto& [size, count] : sizes)
    out.push_back({std::to_string(size), count});
  return out;
}

}  // namespace canzona::report

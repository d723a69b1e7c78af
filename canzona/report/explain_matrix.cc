// Explains why a matrix has its owner.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>

#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/schedule/rank_group.h"
#include "canzona/plan/schedule/team_schedule.h"
#include "canzona/plan/strategies/strategy.h"
#include "canzona/report/explain.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/team_view.h"
#include "canzona/rules/facts.h"

namespace canzona::report {
namespace {

// One matrix of a plan, with everything the sentences need.
struct Subject {
  const PlanPart& plan;
  int32_t matrix;
  int32_t tensor;
  int32_t home;
  int32_t bucket;  // counted over all parts
  BucketRegion region;
};

Subject subject_of(const PlanPart& plan, int32_t matrix) {
  const int32_t tensor = plan.matrices[static_cast<size_t>(matrix)].tensor;
  const auto at = static_cast<size_t>(tensor);
  return {plan,
          matrix,
          tensor,
          plan.home[at],
          bucket_number(plan, tensor),
          region_of(plan, tensor)};
}

const Bucket& bucket_of(const Subject& s) {
  const auto tensor = static_cast<size_t>(s.tensor);
  return s.plan.buckets[static_cast<size_t>(s.plan.bucket_of[tensor])];
}

double even_share(const Subject& s) {
  return static_cast<double>(s.region.total) /
         s.plan.buffer_of(s.tensor).num_homes;
}

// "home 3 keeps elements a to b of bucket 4, 1.02 × the even share".
std::string run_sentence(const Subject& s) {
  const Bucket& bucket = bucket_of(s);
  if (bucket.cuts.empty() || s.home < 0) return "";
  const auto h = static_cast<size_t>(s.home);
  const int64_t size = bucket.cuts[h + 1] - bucket.cuts[h];
  return fmt::format(
      "Home {} stores elements {} to {} of bucket {}: {} × the even share of "
      "{}.",
      s.home, grouped(bucket.cuts[h]), grouped(bucket.cuts[h + 1]), s.bucket,
      ratio_text(static_cast<double>(size) / std::max(1.0, even_share(s))),
      human_count(even_share(s)));
}

std::string home_sentence(const Subject& s) {
  return find_strategy(s.plan.options.strategy).why;
}

std::string group_sentence(const Subject& s) {
  const std::string& mode = s.plan.options.micro_groups;
  if (s.plan.grid.tp == 1 ||
      s.plan.owners[static_cast<size_t>(s.matrix)].empty())
    return "";
  if (mode == "none")
    return "Each matrix is a round of its own; the tp ranks of the home take "
           "turns in plan order.";
  if (mode == "sorted")
    return "Each matrix is a round of its own, largest first; the tp ranks of "
           "the home take turns.";
  if (mode == "capacity")
    return fmt::format(
        "Within its micro-group it went to the least loaded tp rank, up to {} "
        "of shards per owner.",
        human_bytes(s.plan.options.capacity_bytes));
  return "";
}

std::string repeat_sentence(const Subject& s) {
  if (s.home == kEveryHome)
    return "It has no owner: every rank computes the same update.";
  if (s.plan.owners[static_cast<size_t>(s.matrix)].empty() &&
      s.plan.grid.tp > 1)
    return fmt::format("All {} tp ranks of home {} compute the same update.",
                       s.plan.grid.tp, s.home);
  return "";
}

std::string strategy_summary(const std::string& name) {
  for (const StrategyInfo& info : strategies())
    if (info.name == name) return info.summary;
  return "";
}

std::vector<std::string> reasons_of(const Subject& s) {
  const std::string& strategy = s.plan.options.strategy;
  std::vector<std::string> out;
  for (std::string& sentence : std::vector<std::string>{
           fmt::format("{}: {}.", strategy, strategy_summary(strategy)),
           repeat_sentence(s), home_sentence(s), run_sentence(s),
           group_sentence(s)})
    if (!sentence.empty()) out.push_back(std::move(sentence));
  return out;
}

// Returns the ranks that could own the matrix: any rank of its buffer, or, if
// its tensor holds other matrices too, the ranks of its home (a tensor has one
// home).
std::vector<int32_t> candidates(const Subject& s) {
  const auto at = static_cast<size_t>(s.tensor);
  const bool alone = s.plan.first_matrix[at + 1] - s.plan.first_matrix[at] == 1;
  const int32_t first = alone ? 0 : s.home;
  const int32_t last =
      alone ? s.plan.buffer_of(s.tensor).num_homes : s.home + 1;
  std::vector<int32_t> ranks;
  for (int32_t h = first; h < last; ++h)
    for (int32_t t = 0; t < s.plan.grid.tp; ++t)
      ranks.push_back(rank_of(s.plan, s.tensor, h, t));
  return ranks;
}

void find_other(const Subject& s, const std::vector<double>& loads, double cost,
                OwnerStory& story) {
  const auto replicas = static_cast<size_t>(s.plan.num_replicas());
  const bool shared = s.plan.owners[static_cast<size_t>(s.matrix)].size() > 1;
  if (story.repeated || shared || story.owners.size() != replicas) return;
  for (const int32_t rank : candidates(s)) {
    if (rank == story.owners.front()) continue;
    const double load = loads[static_cast<size_t>(rank)] + cost;
    if (story.other_rank >= 0 && load >= story.other_load) continue;
    story.other_rank = rank;
    story.other_load = load;
  }
}

}  // namespace

namespace {

// An owner comes before its helper, whatever their ranks.
void name_ranks(const MatrixInPart& at, const std::optional<TeamStory>& team,
                OwnerStory& story) {
  const auto owners = at.part->owners[static_cast<size_t>(at.matrix)];
  story.repeated = owners.empty();
  story.is_team = team && team->has_head();
  story.has_blocks = team && !team->has_head();
  if (!team || !team->has_helper) {
    story.owners = owner_ranks(*at.part, at.matrix);
  } else {
    story.owners = ranks_at(*at.part, at.matrix, owners[0]);
    const std::vector<int32_t> helpers =
        ranks_at(*at.part, at.matrix, owners[1]);
    story.num_helpers = helpers.size();
    story.owners.insert(story.owners.end(), helpers.begin(), helpers.end());
  }
  story.head = team ? team->members.front().rank : story.owners.front();
}

}  // namespace

OwnerStory tell_owner(const ReportPlan& shown, int32_t matrix) {
  const Plan& plan = shown.plan;
  const MatrixInPart at = matrix_in_part(plan, matrix);
  const Subject s = subject_of(*at.part, at.matrix);
  const std::vector<double> loads = period_loads(plan, shown.ranks);
  const double cost =
      period_load(plan, plan.costs[static_cast<size_t>(matrix)]);
  OwnerStory story;
  const auto team = team_of(*at.part, at.matrix);
  name_ranks(at, team, story);
  story.load_with = loads[static_cast<size_t>(story.head)];
  const double own = team ? period_load(plan, {team->members.front().work,
                                               team->members.front().refresh})
                          : cost;
  story.load_without = std::max(0.0, story.load_with - own);
  story.mean = plan.summary.mean;
  story.makespan = static_cast<double>(plan.summary.makespan.value());
  story.bound = static_cast<double>(
      (may_have_teams(plan) ? plan.summary.team_bound : plan.summary.bound)
          .value());
  story.reasons = reasons_of(s);
  if (std::string reason = TeamReasons(plan).of(matrix); !reason.empty())
    story.reasons.push_back(std::move(reason));
  find_other(s, loads, cost, story);
  return story;
}

namespace {

constexpr size_t kLabel = 12;

// A tensor split by head has hundreds of matrices that hardly differ.
constexpr size_t kMaxExplained = 8;

std::string storage_ranks(const SettledRequest& plan,
                          std::span<const int32_t> ranks) {
  std::string out;
  for (const int32_t rank : ranks)
    out += fmt::format("{}rank {} ({})", out.empty() ? "" : ", ", rank,
                       coordinates_text(plan.mesh, rank));
  return out;
}

// The lines that say which ranks compute the matrix, each with its label.
using LabelledLines = std::vector<std::pair<const char*, std::string>>;

LabelledLines owner_lines(const SettledRequest& plan, const OwnerStory& story) {
  const std::span<const int32_t> all(story.owners);
  const std::string ranks =
      story.repeated && all.size() > 1
          ? fmt::format("none: {} ranks repeat the update", all.size())
          : storage_ranks(plan, all);
  if (story.num_helpers > 0)
    return {{"owner",
             storage_ranks(plan, all.first(all.size() - story.num_helpers))},
            {"helper", storage_ranks(plan, all.last(story.num_helpers))}};
  if (story.is_team)
    return {{"team", ranks}, {"head", storage_ranks(plan, {&story.head, 1})}};
  return {{story.has_blocks ? "owners" : "owner", ranks}};
}

std::string cost_line(const PlanPart& plan, int32_t matrix) {
  const MatrixCost& cost = plan.costs[static_cast<size_t>(matrix)];
  const auto ticks = [&](Ticks t) {
    return cost_text(plan.cost_basis, static_cast<double>(t.value()));
  };
  std::string out = ticks(cost.every_step) + " predicted per step";
  if (cost.refresh.value() > 0)
    out += fmt::format(
        "; refresh {} every {}, phase {} of {}", ticks(cost.refresh),
        plan.period == 1 ? "step" : fmt::format("{} steps", plan.period),
        plan.phase[static_cast<size_t>(matrix)], plan.phases);
  return out;
}

// The ranks of a group of experts are not consecutive, so each is named.
std::string home_text(const PlanPart& plan, const Matrix& m) {
  const int32_t home = plan.home[static_cast<size_t>(m.tensor)];
  const std::string text =
      fmt::format("{} of {}", home, plan.buffer_of(m.tensor).num_homes);
  if (plan.ep == 1) return text;
  return text + ": " + ranks_text(ranks_of_home(plan, m.tensor, home));
}

// Returns "3 of 12", or "9 of 12, experts of ep 1" for a plan in parts.
std::string bucket_text(const Plan& whole, int32_t number) {
  const std::string part = find_bucket(whole, number).part->name;
  return fmt::format("{} of {}{}{}", number, num_buckets(whole),
                     part.empty() ? "" : ", ", part);
}

void add_facts(const Plan& whole, const MatrixInPart& at,
               const OwnerStory& story, Document& out) {
  const PlanPart& plan = *at.part;
  const size_t number = index(at.matrix);
  const Matrix& m = plan.matrices[number];
  const size_t t = index(m.tensor);
  const int32_t bucket = bucket_number(plan, m.tensor);
  const std::string name = name_of(plan, at.matrix);
  const std::string_view cut = to_string(plan.model.tensors[t].cut);
  out.heading(printable(name)).set("name", name);
  const auto line = [&](const char* label, const std::string& text) {
    out.labelled({"", label, "", text}, kLabel);
  };
  line("shape", fmt::format("{} × {}, tp cut: {}", m.rows, m.cols, cut));
  for (const auto& [label, ranks] : owner_lines(whole, story))
    line(label, ranks);
  if (plan.home[t] != kEveryHome)
    line(plan.grid.places > 1 ? "home group" : "home", home_text(plan, m));
  line("bucket", bucket_text(whole, bucket));
  if (plan.grid.tp > 1 && !story.repeated)
    line("micro-group", cat(plan.micro_group[number], " of its home"));
  line("cost", cost_line(plan, at.matrix));
  out.set("rows", m.rows).set("cols", m.cols).set("tp", cut);
  out.set("home", plan.home[t]).set("bucket", bucket);
  out.set("micro_group", plan.micro_group[number]);
  out.set("cost_every_step", plan.costs[number].every_step.value());
  out.set("cost_refresh", plan.costs[number].refresh.value());
  out.set("phase", plan.phase[number]);
}

Document loads_of(const OwnerStory& story) {
  Listing loads;
  Document out;
  const auto row = [&](const char* key, const std::string& name, double load) {
    loads.add(
        {{"", "<", name},
         {"", ">", "",
          story.mean > 0 ? ratio_text(load / story.mean) + " × mean" : "-"}});
    if (key != nullptr) out.set(key, load);
  };
  row("with", cat("rank ", story.head, " as planned"), story.load_with);
  row("without", cat("rank ", story.head, " without this matrix"),
      story.load_without);
  if (story.other_rank >= 0)
    row(nullptr, cat("rank ", story.other_rank, " (best other) with it"),
        story.other_load);
  row("makespan", "makespan of the plan", story.makespan);
  row("bound", "lower bound of any plan", story.bound);
  return out.table("", loads).set("mean", story.mean);
}

std::string verdict(const Plan& plan, const OwnerStory& story) {
  if (story.other_rank < 0) return "";
  if (plan.period > 1)
    return "Loads are sums over a period; the makespan is the sum of the "
           "largest load in each of its steps.";
  if (story.other_load > story.makespan)
    return fmt::format("On rank {} it would raise the makespan by {:.2f} %.",
                       story.other_rank,
                       100 * (story.other_load / story.makespan - 1));
  if (plan.options.strategy != "balanced")
    return fmt::format(
        "On rank {} it would stay within the makespan; {} does "
        "not weigh that.",
        story.other_rank, plan.options.strategy);
  return fmt::format(
      "Rank {} could take it within the makespan: bytes per "
      "bucket, memory or the order of names decided.",
      story.other_rank);
}

void add_story(const Plan& plan, const OwnerStory& story, Document& out) {
  out.set("owners", story.owners).set("repeated", story.repeated);
  if (story.is_team) out.set("head", story.head);
  if (story.num_helpers > 0)
    out.set("helpers", std::vector<int32_t>(
                           story.owners.end() -
                               static_cast<std::ptrdiff_t>(story.num_helpers),
                           story.owners.end()));
  if (story.other_rank >= 0)
    out.set("best_other",
            {{"rank", story.other_rank}, {"load_with_it", story.other_load}});
  out.title("Why").set("reasons", story.reasons);
  for (const std::string& reason : story.reasons) out.line(reason);
  out.add("load", loads_of(story));
  if (const std::string last = verdict(plan, story); !last.empty())
    out.line(last);
}

Document explain_one(const ReportPlan& shown, int32_t matrix) {
  const OwnerStory story = tell_owner(shown, matrix);
  const MatrixInPart at = matrix_in_part(shown.plan, matrix);
  Document out;
  add_facts(shown.plan, at, story, out);
  add_story(shown.plan, story, out);
  if (const auto team = team_of(*at.part, at.matrix))
    out.set("team", team_view(*at.part, *team).value());
  return out.add("moves", moves_view(shown.plan, matrix));
}

// Returns the homes whose part of the AdamW region overlaps the tensor.
std::pair<int32_t, int32_t> adamw_homes(const Bucket& bucket,
                                        const BucketRegion& region) {
  const auto& cuts = bucket.adamw_cuts;
  const auto home = [&](int64_t element) {
    const auto after = std::upper_bound(cuts.begin(), cuts.end(), element);
    return static_cast<int32_t>(after - cuts.begin()) - 1;
  };
  const int64_t last =
      region.offset + std::max<int64_t>(1, region.elements) - 1;
  return {home(region.offset), home(last)};
}

void explain_adamw(const Plan& whole, int32_t number, Document& out) {
  const PlannedTensor planned = planned_tensor(whole, number);
  const PlanPart& plan = *planned.part;
  const int32_t tensor = planned.tensor;
  const Tensor& t = plan.model.tensors[index(tensor)];
  const Bucket& bucket = plan.buckets[index(plan.bucket_of[index(tensor)])];
  out.heading(printable(t.name));
  out.line(cat(dims_text(t.shape), " (", to_string(t.role),
               "), updated by AdamW: element-wise, so it has no owner"));
  const std::string name = cat("bucket ", bucket_number(plan, tensor));
  if (bucket.adamw_cuts.empty()) {
    out.line(name + ": every home stores all of it");
    return;
  }
  const auto [first, last] = adamw_homes(bucket, region_of(plan, tensor));
  out.line(
      cat("at the end of ", name, ", stored by home",
          first == last ? cat(" ", first) : cat("s ", first, " to ", last)));
}

}  // namespace

Document explain_matrices(const ReportPlan& shown, const Found& found) {
  Document out;
  if (found.matrices.empty()) explain_adamw(shown.plan, found.tensor, out);
  std::vector<Value> matrices;
  for (const int32_t matrix : found.matrices) {
    const Document one = explain_one(shown, matrix);
    if (matrices.size() < kMaxExplained)
      out.text(matrices.empty() ? "" : "\n").add_text(one);
    matrices.push_back(one.value());
  }
  if (matrices.size() > kMaxExplained)
    out.text(cat("\n… and ", matrices.size() - kMaxExplained,
                 " more matrices of this tensor, the last is ",
                 printable(name_of(shown.plan, found.matrices.back())), "\n"));
  out.set("tensor", shown.plan.model.tensors[index(found.tensor)].name);
  out.set("rule", matrices.empty() ? kElementRule : shown.plan.rule);
  return out.set("matrices", matrices);
}

}  // namespace canzona::report

#include "canzona/report/owner_story.h"

#include <fmt/format.h>

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/report/in_parts.h"
#include "canzona/report/numbers.h"
#include "canzona/report/places.h"

namespace canzona {
namespace {

// One matrix of a plan with what the sentences need.
struct Subject {
  const PlanPart& plan;
  int32_t matrix;
  int32_t tensor;
  int32_t home;
  int32_t bucket;  // its number among those of all parts
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
      "Home {} keeps elements {} to {} of bucket {}: {} × the even share of "
      "{}.",
      s.home, grouped(bucket.cuts[h]), grouped(bucket.cuts[h + 1]), s.bucket,
      ratio_text(static_cast<double>(size) / std::max(1.0, even_share(s))),
      human_count(even_share(s)));
}

std::string start_sentence(const Subject& s) {
  return fmt::format(
      "Its first element is number {} of the {} of bucket {}; even slices have "
      "{}, and slice {} holds it.",
      grouped(s.region.offset), grouped(s.region.total), s.bucket,
      human_count(even_share(s)), s.home);
}

std::string home_sentence(const Subject& s) {
  const std::string& strategy = s.plan.options.strategy;
  if (strategy == "start_offset") return start_sentence(s);
  if (strategy == "contiguous")
    return fmt::format(
        "The order of bucket {} is kept; the cut points around it were moved "
        "to level the homes.",
        s.bucket);
  if (strategy == "megatron")
    return "Homes take tensors largest max·min² first, each the least loaded "
           "one with room below 1.3 × the even share.";
  if (strategy == "layerwise")
    return "Homes take whole matrices, largest first, each the least loaded.";
  if (strategy == "balanced")
    return "Home and tp coordinate were chosen together over all ranks: "
           "largest "
           "cost first to the least loaded rank, then moves and swaps.";
  return "";
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
        "Inside its micro-group the least loaded tp rank took it, up to {} of "
        "shards per owner.",
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

// The ranks that could own it: any of its buffer, or, where its tensor holds
// other matrices too, those of its home (a tensor has one home).
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
  if (story.repeated || story.owners.size() != replicas) return;
  for (const int32_t rank : candidates(s)) {
    if (rank == story.owners.front()) continue;
    const double load = loads[static_cast<size_t>(rank)] + cost;
    if (story.other_rank >= 0 && load >= story.other_load) continue;
    story.other_rank = rank;
    story.other_load = load;
  }
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
  story.owners = owner_ranks(*at.part, at.matrix);
  story.repeated = at.part->owners[static_cast<size_t>(at.matrix)].empty();
  story.load_with = loads[static_cast<size_t>(story.owners.front())];
  story.load_without = std::max(0.0, story.load_with - cost);
  story.mean = plan.summary.mean;
  story.makespan = static_cast<double>(plan.summary.makespan.value());
  story.bound = static_cast<double>(plan.summary.bound.value());
  story.reasons = reasons_of(s);
  find_other(s, loads, cost, story);
  return story;
}

}  // namespace canzona

#include "canzona/plan/predict/summary.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/error.h"
#include "canzona/plan/cost/cost.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/rank_costs.h"
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona::plan {
namespace {

// Sums of one axis, by rank of that axis.
struct Sums {
  std::vector<double> memory, flops, cost;
  explicit Sums(size_t n) : memory(n, 0), flops(n, 0), cost(n, 0) {}
};

double max_over_mean(const double* begin, size_t n) {
  double most = 0, sum = 0;
  for (size_t i = 0; i < n; ++i) {
    most = std::max(most, begin[i]);
    sum += begin[i];
  }
  return sum > 0 ? most * static_cast<double>(n) / sum : 1;
}

AxisBalance ratios(const Sums& sums, size_t first, size_t n) {
  return {max_over_mean(sums.memory.data() + first, n),
          max_over_mean(sums.flops.data() + first, n),
          max_over_mean(sums.cost.data() + first, n)};
}

void raise(AxisBalance& worst, const AxisBalance& b) {
  worst.memory_max_over_mean =
      std::max(worst.memory_max_over_mean, b.memory_max_over_mean);
  worst.shard_flops_max_over_mean =
      std::max(worst.shard_flops_max_over_mean, b.shard_flops_max_over_mean);
  worst.cost_max_over_mean =
      std::max(worst.cost_max_over_mean, b.cost_max_over_mean);
}

// Returns 20·max·min² of the TP-shard shape, which is what the published logs
// count.
double shard_flops(const PlanPart& part, const Matrix& matrix) {
  const Tensor& tensor = part.model.tensors[static_cast<size_t>(matrix.tensor)];
  auto rows = static_cast<double>(matrix.rows);
  auto cols = static_cast<double>(matrix.cols);
  if (tensor.cut == Cut::kRows) rows /= part.grid.tp;
  if (tensor.cut == Cut::kColumns) cols /= part.grid.tp;
  const double low = std::min(rows, cols);
  return 20 * std::max(rows, cols) * low * low;
}

double shard_elements_of(const PlanPart& part, const Matrix& matrix) {
  const Tensor& tensor = part.model.tensors[static_cast<size_t>(matrix.tensor)];
  const auto elements =
      static_cast<double>(matrix.rows) * static_cast<double>(matrix.cols);
  return tensor.cut == Cut::kNone ? elements : elements / part.grid.tp;
}

double period_cost(const PlanPart& part, const MatrixCost& cost) {
  return static_cast<double>(cost.every_step.value()) * part.period +
         static_cast<double>(cost.refresh.value());
}

// Adds `share` of a matrix, and `cost` for it.
void add_matrix(const PlanPart& part, size_t m, size_t at, double share,
                double cost, Sums& sums) {
  sums.memory[at] += shard_elements_of(part, part.matrices[m]) * share;
  sums.flops[at] += shard_flops(part, part.matrices[m]) * share;
  sums.cost[at] += cost;
}

Sums sums_by_rank(const PlanPart& part) {
  Sums sums(static_cast<size_t>(part.grid.world()));
  TeamTable teams(part);
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    std::vector<MatrixShare> shares;
    if (teams.is_shared(m)) shares = teams.shares(m);
    const auto elements =
        static_cast<double>(part.matrices[m].rows * part.matrices[m].cols);
    size_t next = 0;
    each_computing_rank(part, m, [&](int32_t r) {
      if (shares.empty())
        return add_matrix(part, m, static_cast<size_t>(r), 1,
                          period_cost(part, part.costs[m]), sums);
      const MatrixShare& own = shares[next++];
      add_matrix(part, m, static_cast<size_t>(r),
                 static_cast<double>(own.elements()) / elements,
                 period_cost(part, own.cost), sums);
    });
  }
  return sums;
}

// A matrix counts once for its home, however many tp ranks compute it.
Sums sums_by_home(const PlanPart& part) {
  const int32_t num_homes = part.grid.pp * part.grid.homes();
  Sums sums(static_cast<size_t>(num_homes));
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    each_home(part, part.matrices[m].tensor, [&](int32_t stage, int32_t home) {
      const int32_t in_all = stage * part.grid.homes() + home;
      add_matrix(part, m, static_cast<size_t>(in_all), 1,
                 period_cost(part, part.costs[m]), sums);
    });
  }
  return sums;
}

void measure_homes(const PlanPart& part, const Sums& homes, Balance& out) {
  const auto n = static_cast<size_t>(part.grid.homes());
  for (size_t first = 0; first < homes.memory.size(); first += n) {
    raise(out.dp, ratios(homes, first, n));
    double sum = 0;
    for (size_t h = first; h < first + n; ++h) sum += homes.memory[h];
    const double mean = sum / static_cast<double>(n);
    for (size_t h = first; h < first + n; ++h) {
      out.j_dp = std::max(out.j_dp, std::fabs(homes.memory[h] - mean));
    }
  }
}

void measure_buckets(const PlanPart& part, Balance& out) {
  for (const Bucket& bucket : part.buckets) {
    if (bucket.cuts.size() < 2 || bucket.cuts.back() == 0) continue;
    const auto homes = static_cast<int32_t>(bucket.cuts.size()) - 1;
    const double even = static_cast<double>(bucket.cuts.back()) / homes;
    for (int32_t h = 0; h < homes; ++h) {
      const auto run = static_cast<double>(matrix_elements_at(bucket, h));
      out.bucket_bytes_max_over_even =
          std::max(out.bucket_bytes_max_over_even, run / even);
      out.j_comm += std::fabs(run - even);
    }
  }
}

void measure_axes(const PlanPart& part, Balance& out) {
  const Sums by_rank = sums_by_rank(part);
  measure_homes(part, sums_by_home(part), out);
  measure_buckets(part, out);
  const auto tp = static_cast<size_t>(part.grid.tp);
  out.tp = ratios(by_rank, 0, tp);
  for (size_t first = 0; first < by_rank.memory.size(); first += tp) {
    raise(out.tp_worst, ratios(by_rank, first, tp));
  }
}

void raise_all(Balance& worst, const Balance& b) {
  raise(worst.dp, b.dp);
  raise(worst.tp, b.tp);
  raise(worst.tp_worst, b.tp_worst);
  worst.bucket_bytes_max_over_even =
      std::max(worst.bucket_bytes_max_over_even, b.bucket_bytes_max_over_even);
  worst.j_dp = std::max(worst.j_dp, b.j_dp);
  worst.j_comm += b.j_comm;
}

}  // namespace

double bucket_unevenness(const Plan& plan) {
  Balance out;
  for (const PlanPart& part : plan.parts)
    if (part.traffic != Traffic::kAllReduce) measure_buckets(part, out);
  return out.bucket_bytes_max_over_even;
}

Balance measure_balance(const Plan& plan) {
  Balance out;
  // If every rank repeats everything, all ranks are alike.
  for (const PlanPart& part : plan.parts) {
    if (part.traffic == Traffic::kAllReduce) continue;
    Balance own;
    measure_axes(part, own);
    raise_all(out, own);
  }
  const auto most = static_cast<double>(plan.summary.makespan.value());
  const bool may_share = plan.options.teams != kTeamsOff;
  const auto bound = static_cast<double>(
      (may_share ? plan.summary.team_bound : plan.summary.bound).value());
  if (plan.summary.mean > 0) {
    out.makespan_over_mean = most / plan.summary.mean;
    out.makespan_over_bound = most / bound;
    out.bound_over_mean =
        static_cast<double>(plan.summary.bound.value()) / plan.summary.mean;
    out.team_bound_over_mean =
        static_cast<double>(plan.summary.team_bound.value()) /
        plan.summary.mean;
  }
  out.idle_ranks = plan.summary.idle_ranks;
  return out;
}

std::vector<int64_t> longest_team_paths(const PlanPart& part) {
  TeamTable teams(part);
  std::vector<int64_t> longest(index(part.phases) + 1, 0);
  for (size_t m = 0; m < part.owners.size(); ++m) {
    if (!teams.is_team(m)) continue;
    const int64_t path = teams.of(m).path;
    for (int64_t& most : longest) most = std::max(most, path);
    int64_t& refreshed = longest[index(part.phase[m]) + 1];
    refreshed = std::max(refreshed, path + teams.refresh(m).path);
  }
  return longest;
}

std::map<int32_t, int64_t> teams_by_size(const Plan& plan) {
  std::map<int32_t, int64_t> out;
  for (const PlanPart& part : plan.parts)
    for (size_t m = 0; m < part.owners.size(); ++m)
      if (part.owners[m].size() > 1)
        ++out[static_cast<int32_t>(distinct(part.owners[m]).size())];
  return out;
}

namespace {

// Matrices that cost the same, by buffer.
using AlikeMatrices = std::vector<std::map<MatrixShape, TeamItem>>;

AlikeMatrices items_of(const PlanPart& part) {
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  TeamCosts costs(*rule, part.cost_basis, part.options.links);
  const int32_t most = largest_team(part.options, part.grid.tp);
  AlikeMatrices items(part.buffers.size());
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    const Matrix& matrix = part.matrices[m];
    const int32_t bucket = part.bucket_of[index(matrix.tensor)];
    const MatrixShape shape = shape_of(matrix);
    TeamItem& item = items[index(part.buckets[index(bucket)].buffer)][shape];
    if (item.sizes.empty()) item = {costs.sizes(shape, part.costs[m], most), 0};
    ++item.count;
  }
  return items;
}

// Returns the bound of one stage, or of the matrices of one ep coordinate if
// `ep` is not negative, on `ranks` ranks.
int64_t bound_of(const PlanPart& part, const AlikeMatrices& items,
                 int32_t stage, int32_t ep, int64_t ranks) {
  std::vector<TeamItem> own;
  for (size_t b = 0; b < items.size(); ++b) {
    const Buffer& buffer = part.buffers[b];
    if (buffer.stage != stage || (ep >= 0 && buffer.ep != ep)) continue;
    for (const auto& [shape, item] : items[b]) own.push_back(item);
  }
  return team_bound(own, ranks);
}

// Returns the bound of all parts' matrices on the ranks of the whole plan.
int64_t bound_of_parts(const Plan& plan) {
  std::vector<std::vector<TeamItem>> items(index(plan.mesh.pp));
  for (const PlanPart& part : plan.parts) {
    const AlikeMatrices alike = items_of(part);
    for (size_t b = 0; b < alike.size(); ++b)
      for (auto [shape, item] : alike[b]) {
        item.count *= part.num_replicas();
        items[index(part.buffers[b].stage)].push_back(std::move(item));
      }
  }
  int64_t bound = 0;
  for (const std::vector<TeamItem>& of_stage : items)
    bound = std::max(bound, team_bound(of_stage, plan.mesh.ranks_per_stage()));
  return bound;
}

// The work of blocks with separate owners, by kind of step.
class BlockWork {
 public:
  explicit BlockWork(const SettledRequest& plan)
      : plan_(plan),
        steps_(steps_of(plan.period, plan.phases)),
        sum_(steps_.size(), 0),
        largest_(steps_.size(), 0) {}

  void add(const MatrixCost& cost, int32_t phase, int64_t count) {
    const std::vector<int64_t> load =
        load_by_step(cost, phase, plan_.period, plan_.phases);
    for (size_t k = 0; k < load.size(); ++k) {
      sum_[k] += count * load[k];
      largest_[k] = std::max(largest_[k], load[k]);
    }
  }
  // In each step some rank has the largest block, and some rank the mean.
  int64_t bound(int64_t ranks) const {
    int64_t bound = 0;
    for (size_t k = 0; k < steps_.size(); ++k)
      bound += steps_[k] * std::max(largest_[k], (sum_[k] + ranks - 1) / ranks);
    return bound;
  }

 private:
  const SettledRequest& plan_;
  std::vector<int64_t> steps_, sum_, largest_;
};

// Adds the matrices of a stage, or of one of its ep coordinates, `count` times.
void add_blocks(const PlanPart& part, int32_t stage, int32_t ep, int64_t count,
                BlockWork& work) {
  const auto rule = make_rule_facts(part.rule, part.rule_options);
  const bool apart = largest_team(part.options, part.grid.tp) > 1;
  std::map<MatrixShape, std::map<MatrixShape, std::pair<MatrixCost, int64_t>>>
      kinds;  // of blocks, by shape of the matrix
  for (size_t m = 0; m < part.matrices.size(); ++m) {
    const Matrix& matrix = part.matrices[m];
    const Buffer& buffer = part.buffer_of(matrix.tensor);
    if (buffer.stage != stage || (ep >= 0 && buffer.ep != ep)) continue;
    const MatrixShape shape = shape_of(matrix);
    const auto [known, is_new] = kinds.try_emplace(shape);
    const MatrixBlocks blocks(*rule, apart && is_new ? shape : MatrixShape{});
    if (is_new && !blocks.fall_apart())
      known->second[shape] = {part.costs[m], 1};
    for (int32_t b = 0; is_new && blocks.fall_apart() && b < blocks.count();
         ++b) {
      auto& [cost, number] = known->second[blocks.shape_of(b)];
      cost = blocks.least_cost(part.costs[m], b);
      ++number;
    }
    for (const auto& [sides, kind] : known->second)
      work.add(kind.first, part.phase[m], count * kind.second);
  }
}

int64_t block_bound(const PlanPart& part) {
  const Mesh& grid = part.grid;
  int64_t bound = 0;
  for (int32_t stage = 0; stage < grid.pp; ++stage) {
    BlockWork all(part);
    add_blocks(part, stage, -1, 1, all);
    bound = std::max(bound, all.bound(grid.ranks_per_stage()));
    for (int32_t ep = 0; grid.ep > 1 && ep < grid.ep; ++ep) {
      BlockWork own(part);
      add_blocks(part, stage, ep, 1, own);
      bound = std::max(bound, own.bound(grid.expert_homes() * grid.tp));
    }
  }
  return bound;
}

int64_t block_bound_of_parts(const Plan& plan) {
  int64_t bound = 0;
  for (int32_t stage = 0; stage < plan.mesh.pp; ++stage) {
    BlockWork all(plan);
    for (const PlanPart& part : plan.parts)
      add_blocks(part, stage, -1, part.num_replicas(), all);
    bound = std::max(bound, all.bound(plan.mesh.ranks_per_stage()));
  }
  return bound;
}

bool is_in_blocks(const SettledRequest& plan) {
  return has_blocks(plan, *make_rule_facts(plan.rule, plan.rule_options));
}

}  // namespace

Ticks team_bound_of(const PlanPart& part) {
  if (is_in_blocks(part)) return Ticks(block_bound(part));
  const AlikeMatrices items = items_of(part);
  const Mesh& grid = part.grid;
  int64_t bound = 0;
  for (int32_t stage = 0; stage < grid.pp; ++stage) {
    bound = std::max(bound,
                     bound_of(part, items, stage, -1, grid.ranks_per_stage()));
    for (int32_t ep = 0; grid.ep > 1 && ep < grid.ep; ++ep)
      bound = std::max(bound, bound_of(part, items, stage, ep,
                                       grid.expert_homes() * grid.tp));
  }
  return Ticks(bound);
}

Ticks team_bound_of(const Plan& plan) {
  Ticks bound;
  for (const PlanPart& part : plan.parts)
    bound = std::max(bound, team_bound_of(part));
  if (!cuts_experts_apart(plan)) return bound;
  const bool in_blocks = is_in_blocks(plan);
  return std::max(bound, Ticks(in_blocks ? block_bound_of_parts(plan)
                                         : bound_of_parts(plan)));
}

namespace {

// Returns a matrix's work over a period, on all ranks.
double period_work(const SettledRequest& plan, const MatrixCost& cost) {
  return static_cast<double>(cost.every_step.value()) * plan.period +
         static_cast<double>(cost.refresh.value());
}
double total_work(const PlanPart& part) {
  double work = 0;
  for (const MatrixCost& cost : part.costs) work += period_work(part, cost);
  return work * part.num_replicas();
}
double total_work(const Plan& plan) {
  double work = 0;
  for (const PlanPart& part : plan.parts) work += total_work(part);
  return work;
}

// Returns a makespan that single owners can achieve, by dealing matrices
// longest first, for plans whose own makespan teams may have lowered.
template <class WholeOrPart>
Ticks longest_first(const WholeOrPart& plan, double mean) {
  if (!has_teams(plan)) return {};
  double largest = 0;
  for (const MatrixCost& cost : plan.costs)
    largest = std::max(largest, period_work(plan, cost));
  return Ticks(static_cast<int64_t>(std::ceil(mean + largest)));
}

// False if the request rules out sharing: other micro-group modes give each
// matrix one owner.
bool may_share(const SettledRequest& plan) {
  if (plan.options.micro_groups != "balanced") return false;
  if (plan.period == 1) return true;
  const auto rule = make_rule_facts(plan.rule, plan.rule_options);
  return has_blocks(plan, *rule) || can_share_any(plan, *rule);
}

template <class WholeOrPart>
PlanSummary figures_of(const WholeOrPart& plan,
                       const std::vector<RankCost>& ranks) {
  PlanSummary s;
  s.makespan = makespan(plan, ranks);
  s.mean = total_work(plan) / static_cast<double>(ranks.size());
  // With teams, the makespan may be below what single owners can achieve.
  s.bound =
      makespan_bound(plan, std::max(s.makespan, longest_first(plan, s.mean)));
  if (plan.options.teams != kTeamsOff)
    s.team_bound =
        may_share(plan) ? std::min(team_bound_of(plan), s.bound) : s.bound;
  const auto world = static_cast<double>(ranks.size());
  double memory = 0;
  for (const RankCost& rank : ranks) {
    s.idle_ranks += rank.num_matrices == 0;
    s.bytes_per_rank_max =
        std::max(s.bytes_per_rank_max, Bytes(rank.bytes_sent()));
    s.memory_per_rank_max =
        std::max(s.memory_per_rank_max, rank.memory.total());
    memory += static_cast<double>(rank.memory.total().value());
    s.step_seconds_mean = std::max(s.step_seconds_mean, rank.step_seconds_mean);
    s.step_seconds_worst =
        std::max(s.step_seconds_worst, rank.step_seconds_worst);
  }
  s.memory_per_rank_mean = memory / world;
  return s;
}

}  // namespace

PlanSummary summarize(const PlanPart& part,
                      const std::vector<RankCost>& ranks) {
  return figures_of(part, ranks);
}

PlanSummary summarize(const Plan& plan, const std::vector<RankCost>& ranks) {
  return figures_of(plan, ranks);
}

void summarize(Plan& plan) {
  std::vector<std::vector<RankCost>> of_parts;
  for (PlanPart& part : plan.parts) {
    of_parts.push_back(predict(part));
    part.summary = summarize(part, of_parts.back());
  }
  plan.summary = cuts_experts_apart(plan)
                     ? summarize(plan, sum_of_parts(plan, std::move(of_parts)))
                     : plan.parts.front().summary;
}

}  // namespace canzona::plan

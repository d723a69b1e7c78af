#include "canzona/plan/predict/metrics.h"

#include <algorithm>
#include <cmath>

#include "canzona/plan/predict/loads.h"
#include "canzona/plan/predict/predict_parts.h"
#include "canzona/plan/schedule/team_table.h"

namespace canzona {
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

// 20·max·min² of the TP-shard shape, as the published logs count.
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

// `share` of a matrix and `cost` of it.
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

Balance measure_balance(const Plan& plan) {
  Balance out;
  // All ranks are alike if every rank repeats everything.
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

}  // namespace canzona

// Numbers as the views print them, and figures over all ranks.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/predict/predict.h"

namespace canzona {

// A ratio whose best value is 1: "1.0003", "2.462", "31.5".
std::string ratio_text(double ratio);

// 1234567 → "1,234,567".
std::string grouped(int64_t number);

// "3 tensors", "1 tensor", "2 matrices".
std::string counted(int64_t number, std::string_view thing);

// "5120 × 25600", "5120", "scalar".
std::string dims_text(const std::vector<int64_t>& shape);

// 5.9e12 → "5.90 Tflop".
std::string flops_text(double flops);

// A cost: predicted time and, where ticks are flops, the flops.
std::string cost_text(const CostBasis& basis, double ticks);

// Bytes that were averaged or drawn: 1.5e9 → "1.40 GiB".
std::string bytes_text(double bytes);

// "400 GB/s".
std::string bandwidth_text(double bytes_per_second);

// Largest, smallest and mean of one figure over all ranks.
struct Spread {
  double max = 0;
  double min = 0;
  double mean = 0;
  int32_t largest = 0;  // the first rank that has `max`
  double max_over_mean() const { return mean > 0 ? max / mean : 1; }
};
Spread spread_of(const std::vector<double>& values);

template <class Figure>
Spread spread_over(const std::vector<RankCost>& ranks, const Figure& figure) {
  std::vector<double> values;
  values.reserve(ranks.size());
  for (const RankCost& rank : ranks)
    values.push_back(static_cast<double>(figure(rank)));
  return spread_of(values);
}

// One line per kind of memory, in the order in which views list them; pools
// where there are any.
struct MemoryKind {
  const char* name;
  Bytes RankMemory::*field;
};
std::vector<MemoryKind> memory_kinds(bool with_pools);
// True if any tensor is cut into slices, and needs them.
bool has_pools(const Plan& plan);
inline std::vector<MemoryKind> memory_kinds(const Plan& plan) {
  return memory_kinds(has_pools(plan));
}

// Ticks of one rank, or of one matrix, over a whole period.
double period_load(const SettledRequest& plan, const RankCost& rank);
double period_load(const SettledRequest& plan, const MatrixCost& cost);
std::vector<double> period_loads(const SettledRequest& plan,
                                 const std::vector<RankCost>& ranks);

// True where ticks are flops at a nominal rate.
bool is_nominal(const CostBasis& basis);

}  // namespace canzona

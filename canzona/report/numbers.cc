#include "canzona/report/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>

#include "canzona/base/text.h"

namespace canzona {

std::string ratio_text(double ratio) {
  if (ratio < 1.1) return fmt::format("{:.4f}", ratio);
  return ratio < 100 ? fmt::format("{:.3f}", ratio)
                     : fmt::format("{:.1f}", ratio);
}

std::string grouped(int64_t number) {
  std::string digits = fmt::format("{}", number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = digits.size(); at > first + 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

std::string counted(int64_t number, std::string_view thing) {
  if (number == 1) return fmt::format("1 {}", thing);
  if (thing == "matrix") return grouped(number) + " matrices";
  return fmt::format("{} {}s", grouped(number), thing);
}

std::string dims_text(const std::vector<int64_t>& shape) {
  if (shape.empty()) return "scalar";
  std::string out;
  for (const int64_t size : shape)
    out += fmt::format("{}{}", out.empty() ? "" : " × ", size);
  return out;
}

std::string flops_text(double flops) {
  constexpr std::array kPrefixes = {"", "K", "M", "G", "T", "P", "E"};
  size_t prefix = 0;
  for (; flops >= 999.5 && prefix + 1 < kPrefixes.size(); ++prefix)
    flops /= 1000;
  const int digits = flops < 9.995 ? 2 : flops < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}flop", flops, digits, kPrefixes[prefix]);
}

std::string cost_text(const CostBasis& basis, double ticks) {
  std::string time = human_seconds(ticks * basis.seconds_per_tick);
  if (!is_nominal(basis)) return time;
  return flops_text(ticks) + ", " + time;
}

std::string bytes_text(double bytes) {
  return human_bytes(static_cast<int64_t>(bytes));
}

std::string bandwidth_text(double bytes_per_second) {
  return fmt::format("{:g} GB/s", bytes_per_second / 1e9);
}

Spread spread_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto most = std::max_element(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.max = *most,
          .min = *std::min_element(values.begin(), values.end()),
          .mean = sum / static_cast<double>(values.size()),
          .largest = static_cast<int32_t>(most - values.begin())};
}

std::vector<MemoryKind> memory_kinds(bool with_pools) {
  std::vector<MemoryKind> kinds = {
      {"parameters", &RankMemory::parameters},
      {"gradients", &RankMemory::gradients},
      {"master", &RankMemory::master},
      {"states", &RankMemory::states},
      {"buffers", &RankMemory::buffers},
  };
  if (with_pools) kinds.push_back({"pools", &RankMemory::pools});
  return kinds;
}

bool has_pools(const Plan& plan) {
  return std::ranges::any_of(
      plan.parts, [](const PlanPart& part) { return part.grid.places > 1; });
}

double period_load(const SettledRequest& plan, const RankCost& rank) {
  double load = static_cast<double>(rank.every_step.value()) * plan.period;
  for (const Ticks refresh : rank.refresh)
    load += static_cast<double>(refresh.value());
  return load;
}

double period_load(const SettledRequest& plan, const MatrixCost& cost) {
  return static_cast<double>(cost.every_step.value()) * plan.period +
         static_cast<double>(cost.refresh.value());
}

std::vector<double> period_loads(const SettledRequest& plan,
                                 const std::vector<RankCost>& ranks) {
  std::vector<double> loads;
  loads.reserve(ranks.size());
  for (const RankCost& rank : ranks) loads.push_back(period_load(plan, rank));
  return loads;
}

bool is_nominal(const CostBasis& basis) { return basis.source == "nominal"; }

}  // namespace canzona

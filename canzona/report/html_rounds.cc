#include "canzona/report/html_rounds.h"

#include <algorithm>
#include <map>

#include "canzona/report/html_view.h"
#include "canzona/report/numbers.h"

namespace canzona {
namespace {

bool lives_at(const PlanPart& plan, const Matrix& matrix,
              const Coordinates& place) {
  const Bucket& bucket = plan.buckets[static_cast<size_t>(
      plan.bucket_of[static_cast<size_t>(matrix.tensor)])];
  const int32_t home = home_of(plan, matrix.tensor);
  return stage_of_bucket(plan, bucket) == place.stage &&
         (home == place.home || home == kEveryHome);
}

void add_block(const PlanPart& plan, size_t m, DrawnRound& round) {
  const auto owners = plan.owners[m];
  const double cost = mean_cost(plan, m);
  if (owners.empty()) {  // every tp rank repeats it
    for (auto& blocks : round.blocks) blocks.push_back({m, cost});
    return;
  }
  for (int32_t t : owners) {  // a team shares it
    round.blocks[static_cast<size_t>(t)].push_back(
        {m, cost / static_cast<double>(owners.size())});
  }
}

}  // namespace

int32_t busiest_rank(const ReportPlan& shown) {
  return spread_of(period_loads(shown.plan, shown.ranks)).largest;
}

std::vector<DrawnRound> rounds_of(const PlanPart& plan,
                                  const Coordinates& place) {
  std::map<int32_t, DrawnRound> rounds;
  for (size_t m = 0; m < plan.matrices.size(); ++m) {
    if (!lives_at(plan, plan.matrices[m], place)) continue;
    DrawnRound& round = rounds[plan.micro_group[m]];
    round.number = plan.micro_group[m];
    round.blocks.resize(static_cast<size_t>(plan.grid.tp));
    add_block(plan, m, round);
  }
  std::vector<DrawnRound> out;
  for (auto& [number, round] : rounds) {
    for (const auto& blocks : round.blocks) {
      double sum = 0;
      for (const Block& block : blocks) sum += block.cost;
      round.widest = std::max(round.widest, sum);
    }
    out.push_back(std::move(round));
  }
  return out;
}

// Distinct shapes of the shown rounds, the largest first: each has a colour.
std::vector<MatrixShape> shapes_of(const SettledRequest& plan,
                                   const std::vector<DrawnRound>& rounds) {
  std::vector<MatrixShape> shapes;
  for (const DrawnRound& round : rounds) {
    for (const auto& blocks : round.blocks) {
      for (const Block& block : blocks) {
        const Matrix& matrix = plan.matrices[block.matrix];
        shapes.push_back({matrix.rows, matrix.cols});
      }
    }
  }
  std::sort(shapes.begin(), shapes.end(), [](auto a, auto b) {
    const int64_t x = a.rows * a.cols;
    const int64_t y = b.rows * b.cols;
    return x != y ? x > y : b < a;
  });
  shapes.erase(std::unique(shapes.begin(), shapes.end()), shapes.end());
  return shapes;
}

}  // namespace canzona

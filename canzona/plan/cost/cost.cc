#include "canzona/plan/cost/cost.h"

#include <cmath>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr double kPicosecondsPerSecond = 1e12;
constexpr double kLongestSeconds = 1e6;

Ticks picoseconds(double seconds, MatrixShape shape) {
  if (!(seconds >= 0 && seconds <= kLongestSeconds)) {
    throw UsageError(cat("cost table: ", seconds, " seconds for a ", shape.rows,
                         "×", shape.cols, " matrix, expected at most ",
                         kLongestSeconds));
  }
  return Ticks(std::llround(seconds * kPicosecondsPerSecond));
}

}  // namespace

CostModel::CostModel(const RuleFacts& rule, const CostTable* table)
    : rule_(rule), table_(table) {
  if (table) {
    basis_.source = table->device();
    basis_.seconds_per_tick = 1 / kPicosecondsPerSecond;
    basis_.element_wise_bytes_per_second =
        table->element_wise_bytes_per_second().value_or(0);
  } else {
    basis_.seconds_per_tick = 1 / kNominalFlopsPerSecond;
  }
}

MatrixCost CostModel::cost(MatrixShape shape) const {
  auto it = known_.find(shape);
  if (it == known_.end()) it = known_.emplace(shape, compute(shape)).first;
  return it->second;
}

MatrixCost CostModel::compute(MatrixShape shape) const {
  const RuleWork work = rule_.work(shape);
  if (!table_) {
    return {Ticks(work.every_step.value()), Ticks(work.refresh.value())};
  }
  // A shape whose algorithm was not measured runs at the table's mean rate.
  auto ticks = [&](bool refresh, Flops flops) {
    if (auto measured = table_->seconds(rule_, shape, refresh)) {
      return picoseconds(*measured, shape);
    }
    const double rate = table_->mean_seconds_per_flop(refresh).value_or(
        1 / kNominalFlopsPerSecond);
    return picoseconds(static_cast<double>(flops.value()) * rate, shape);
  };
  return {ticks(false, work.every_step),
          work.refresh.value() == 0 ? Ticks(0) : ticks(true, work.refresh)};
}

MatrixCost CostModel::weight(Weight weight, MatrixShape shape,
                             int32_t copies) const {
  if (weight == Weight::kCost) return cost(shape);
  if (weight == Weight::kFlops) {
    const RuleWork work = rule_.work(shape);
    return {Ticks(work.every_step.value()), Ticks(work.refresh.value())};
  }
  return {Ticks(checked_mul(checked_mul(shape.rows, shape.cols, "elements"),
                            copies, "elements")),
          Ticks(0)};
}

}  // namespace canzona

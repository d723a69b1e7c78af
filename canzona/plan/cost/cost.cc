#include "canzona/plan/cost/cost.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"
#include "canzona/plan/ranges.h"

namespace canzona {
namespace {

constexpr double kPicosecondsPerSecond = 1e12;
constexpr double kLongestSeconds = 1e6;

Ticks picoseconds(double seconds, MatrixShape shape) {
  if (!(seconds >= 0 && seconds <= kLongestSeconds)) {
    throw UsageError(cat("the cost table has ", seconds, " seconds for a ",
                         shape.rows, "×", shape.cols,
                         " matrix, expected at most ", kLongestSeconds));
  }
  return Ticks(std::llround(seconds * kPicosecondsPerSecond));
}

}  // namespace

CostModel::CostModel(const RuleFacts& rule, const CostTable* table,
                     double flops_per_second)
    : rule_(rule), table_(table) {
  if (table) {
    basis_.source = table->device();
    basis_.seconds_per_tick = 1 / kPicosecondsPerSecond;
    basis_.element_wise_bytes_per_second =
        table->element_wise_bytes_per_second().value_or(0);
  } else {
    basis_.seconds_per_tick = 1 / flops_per_second;
  }
}

MatrixCost CostModel::cost(MatrixShape shape) const {
  auto it = known_.find(shape);
  if (it == known_.end()) it = known_.emplace(shape, compute(shape)).first;
  return it->second;
}

// Column heads cost what as many matrices do.
MatrixCost CostModel::compute(MatrixShape shape) const {
  if (table_ && shape.column_heads > 1) {
    const MatrixCost head = cost({shape.rows, shape.cols / shape.column_heads});
    return {head.every_step * shape.column_heads,
            head.refresh * shape.column_heads};
  }
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

namespace {

int64_t times(int64_t bytes, int64_t count) {
  return checked_mul(bytes, count, "bytes");
}

}  // namespace

int64_t ticks_of_part(Ticks whole, int64_t part, Flops flops) {
  if (flops.value() == 0) return 0;
  const Int128 product = Int128{whole.value()} * part;
  return static_cast<int64_t>((product + flops.value() - 1) / flops.value());
}

namespace {

// The owner sends a triangle and gets a factor.
TeamBytes helped_bytes(const StripFacts& facts, int32_t member) {
  const int64_t triangle = times(facts.sum_elements, kBytesPerFp32);
  TeamBytes bytes;
  (member == 0 ? bytes.sums_sent : bytes.sums_received) = triangle;
  (member == 0 ? bytes.factors_received : bytes.factors_sent) =
      facts.factor_bytes;
  return bytes;
}

}  // namespace

TeamBytes team_bytes(const StripFacts& facts, int32_t size, int32_t member) {
  if (facts.has_helper()) return helped_bytes(facts, member);
  const int64_t all = facts.sum_elements;
  const int64_t sum = even_extent(all, size, member).count;
  TeamBytes bytes;
  bytes.sums_received = times(sum, kBytesPerFp32 * (size - 1));
  bytes.sums_sent = times(all - sum, kBytesPerFp32);
  if (member == 0) {
    bytes.sums_received += times(all - sum, facts.rounded_bytes);
    bytes.factors_sent = facts.factor_bytes;
  } else {
    bytes.sums_sent += times(sum, facts.rounded_bytes);
    bytes.factors_sent = times(
        even_extent(facts.factor_bytes, size - 1, member - 1).count, size - 2);
    bytes.factors_received = facts.factor_bytes;
  }
  for (int64_t* count : {&bytes.sums_sent, &bytes.sums_received,
                         &bytes.factors_sent, &bytes.factors_received})
    *count = times(*count, facts.segments);
  const int64_t norm = 2 * facts.norm_bytes * facts.strips / size * (size - 1);
  bytes.sums_sent += norm;
  bytes.sums_received += norm;
  return bytes;
}

TeamBytes ordinary_team_bytes(const StripFacts& facts, int32_t size,
                              int32_t member) {
  if (facts.has_helper() && facts.factors_at_refresh) return {};
  TeamBytes bytes = team_bytes(facts, size, member);
  if (facts.factors_at_refresh) bytes.factors_sent = bytes.factors_received = 0;
  return bytes;
}

const TeamCosts::OfShape& TeamCosts::of(MatrixShape shape) {
  const auto found = known_.find(shape);
  if (found != known_.end()) return found->second;
  return known_.emplace(shape, OfShape{rule_.strips(shape), rule_.work(shape)})
      .first->second;
}

int64_t TeamCosts::ticks_in_transit(int64_t bytes, int hops) const {
  const double seconds =
      static_cast<double>(bytes) / links_.intra_bytes_per_second +
      links_.latency_seconds * hops;
  constexpr double kMostTicks = 1e18;
  return static_cast<int64_t>(
      std::min(std::ceil(seconds / basis_.seconds_per_tick), kMostTicks));
}

// A sum has two messages in sequence, and so has a factor; the head's port is
// the bottleneck.
int64_t TeamCosts::link_ticks(const StripFacts& facts, int32_t size) const {
  const TeamBytes head = ordinary_team_bytes(facts, size, 0);
  const int hops = facts.factors_at_refresh ? 2 : 4;
  return ticks_in_transit(head.sums_received + head.factors_sent,
                          hops * facts.segments);
}

int64_t TeamCosts::factor_ticks(const StripFacts& facts) const {
  if (!facts.factors_at_refresh) return 0;
  return ticks_in_transit(times(facts.factor_bytes, facts.segments),
                          2 * facts.segments);
}

namespace {

// Work of a matrix that a team shares: of the widest strip, of the head beyond
// its strips, and of the whole.
struct SharedFlops {
  Flops strip, head, whole;
};

// Returns the ticks of a team whose matrix takes `ticks` alone; its path does
// not include transfers. A size that is no power of two, as in a plan that is
// refused, is rounded up.
TeamSize team_of(Ticks ticks, const SharedFlops& flops, int strips,
                 int32_t size) {
  const int64_t each = (strips + int64_t{size} - 1) / size;
  TeamSize team;
  team.size = size;
  team.member = ticks_of_part(ticks, each * flops.strip.value(), flops.whole);
  team.head = ticks_of_part(ticks, flops.head.value(), flops.whole);
  team.path = team.at_head();
  return team;
}

}  // namespace

TeamSize TeamCosts::team(MatrixShape shape, const MatrixCost& cost,
                         int32_t size) {
  const int64_t whole = cost.every_step.value();
  if (size <= 1) return whole_matrix(whole);
  const auto& [facts, work] = of(shape);
  if (facts.has_helper()) return {size, 0, whole, whole};
  TeamSize team =
      team_of(cost.every_step, {facts.strip, facts.head, work.every_step},
              facts.strips, size);
  team.path = checked_add(team.path, link_ticks(facts, size), "ticks");
  return team;
}

TeamSize TeamCosts::refresh(MatrixShape shape, const MatrixCost& cost,
                            int32_t size) {
  if (size <= 1) return whole_matrix(cost.refresh.value());
  if (of(shape).strips.has_helper()) return helped_refresh(of(shape), cost);
  const auto& [facts, work] = of(shape);
  TeamSize team = team_of(
      cost.refresh, {facts.strip_refresh, facts.head_refresh, work.refresh},
      facts.strips, size);
  team.path = checked_add(team.path, factor_ticks(facts), "ticks");
  return team;
}

// The owner moves its states when both factors are there. It may have less to
// do than the helper.
TeamSize TeamCosts::helped_refresh(const OfShape& of,
                                   const MatrixCost& cost) const {
  const auto& [facts, work] = of;
  const auto ticks_of = [&, &whole = work.refresh](Flops part) {
    return ticks_of_part(cost.refresh, part.value(), whole);
  };
  const int64_t in_transit = ticks_in_transit(
      times(facts.sum_elements, kBytesPerFp32) + facts.factor_bytes, 2);
  const int64_t own = ticks_of(facts.head_refresh);
  const int64_t after = ticks_of(facts.strip_refresh);
  TeamSize team;
  team.size = 2;
  team.member = ticks_of(facts.helper_refresh);
  team.head = own + after - team.member;
  team.path = checked_add(
      after, std::max(own, checked_add(team.member, in_transit, "ticks")),
      "ticks");
  return team;
}

TeamSize TeamCosts::over_period(MatrixShape shape, const MatrixCost& cost,
                                int32_t size) {
  TeamSize sum = refresh(shape, cost, size);
  const TeamSize each = team(shape, cost, size);
  const auto add = [&](int64_t& to, int64_t ticks) {
    to = checked_add(to, checked_mul(ticks, rule_.period(), "ticks"), "ticks");
  };
  add(sum.member, each.member);
  add(sum.head, each.head);
  add(sum.path, each.path);
  return sum;
}

TeamSizes TeamCosts::sizes(MatrixShape shape, const MatrixCost& cost,
                           int32_t most) {
  most = std::min<int32_t>(most, of(shape).strips.most_ranks());
  TeamSizes sizes;
  for (int32_t size = 1; size <= std::max(most, 1); size *= 2)
    sizes.push_back(over_period(shape, cost, size));
  return sizes;
}

namespace {

int64_t pieces_along(int64_t side, int64_t piece) {
  return (side + piece - 1) / piece;
}

}  // namespace

MatrixBlocks::MatrixBlocks(const RuleFacts& rule, MatrixShape shape)
    : shape_(shape), block_(rule.block(shape)) {
  if (block_ == shape_) return;
  const int64_t down = pieces_along(shape.rows, block_.rows);
  const int64_t across = pieces_along(shape.cols, block_.cols);
  if (down > kMostBlocks || across > kMostBlocks ||
      down * across > kMostBlocks) {
    block_ = shape_;
    return;
  }
  count_ = static_cast<int32_t>(down * across);
  across_ = across;
  work_ = rule.work(shape);
  for (int32_t b = 0; b < count_; ++b) of_block_.try_emplace(shape_of(b));
  for (auto& [sides, work] : of_block_) work = rule.work(sides);
}

Rectangle MatrixBlocks::at(int32_t number) const {
  const int64_t row = number / across_ * block_.rows;
  const int64_t col = number % across_ * block_.cols;
  return {row, std::min(block_.rows, shape_.rows - row), col,
          std::min(block_.cols, shape_.cols - col)};
}

MatrixShape MatrixBlocks::shape_of(int32_t number) const {
  const Rectangle block = at(number);
  return {block.num_rows, block.num_cols};
}

template <class TicksOfPart>
MatrixCost MatrixBlocks::share(const MatrixCost& whole, int32_t number,
                               const TicksOfPart& ticks_of) const {
  if (count_ == 1) return whole;
  const RuleWork& own = of_block_.at(shape_of(number));
  return {Ticks(ticks_of(whole.every_step, own.every_step, work_.every_step)),
          Ticks(ticks_of(whole.refresh, own.refresh, work_.refresh))};
}

MatrixCost MatrixBlocks::cost(const MatrixCost& whole, int32_t number) const {
  return share(whole, number, [](Ticks ticks, Flops part, Flops all) {
    return ticks_of_part(ticks, part.value(), all);
  });
}

MatrixCost MatrixBlocks::least_cost(const MatrixCost& whole,
                                    int32_t number) const {
  return share(whole, number, [](Ticks ticks, Flops part, Flops all) {
    return all.value() == 0 ? 0
                            : static_cast<int64_t>(Int128{ticks.value()} *
                                                   part.value() / all.value());
  });
}

namespace {

template <class Is>
bool is_any_shape(const SettledRequest& request, const Is& is) {
  std::set<MatrixShape> shapes;
  for (const Matrix& m : request.matrices) shapes.insert(shape_of(m));
  return std::any_of(shapes.begin(), shapes.end(), is);
}

}  // namespace

bool can_share_any(const SettledRequest& request, const RuleFacts& rule) {
  return is_any_shape(request, [&](MatrixShape shape) {
    return rule.strips(shape).most_ranks() > 1;
  });
}

bool has_blocks(const SettledRequest& request, const RuleFacts& rule) {
  return is_any_shape(request, [&](MatrixShape shape) {
    return MatrixBlocks(rule, shape).fall_apart();
  });
}

}  // namespace canzona

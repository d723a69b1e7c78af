#include "canzona/plan/cost/team_cost.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/units.h"
#include "canzona/plan/schedule/ranges.h"

namespace canzona {
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

TeamBytes team_bytes(const StripFacts& facts, int32_t size, int32_t member) {
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

const TeamCosts::OfShape& TeamCosts::of(MatrixShape shape) {
  const auto found = known_.find(shape);
  if (found != known_.end()) return found->second;
  return known_
      .emplace(shape,
               OfShape{rule_.strips(shape), rule_.work(shape).every_step})
      .first->second;
}

// Four messages follow each other in a segment; the head's port is the narrow
// place.
int64_t TeamCosts::link_ticks(const StripFacts& facts, int32_t size) const {
  constexpr int kHops = 4;
  const TeamBytes head = team_bytes(facts, size, 0);
  const double seconds =
      static_cast<double>(head.sums_received + head.factors_sent) /
          links_.intra_bytes_per_second +
      links_.latency_seconds * kHops * facts.segments;
  constexpr double kMostTicks = 1e18;
  return static_cast<int64_t>(
      std::min(std::ceil(seconds / basis_.seconds_per_tick), kMostTicks));
}

TeamSize TeamCosts::team(MatrixShape shape, const MatrixCost& cost,
                         int32_t size) {
  if (size <= 1) return whole_matrix(cost.every_step.value());
  const auto& [facts, work] = of(shape);
  const int64_t strips =
      (facts.strips + int64_t{size} - 1) / size * facts.strip.value();
  TeamSize team;
  team.size = size;
  team.member = ticks_of_part(cost.every_step, strips, work);
  team.head = ticks_of_part(cost.every_step, facts.head.value(), work);
  team.path = checked_add(team.at_head(), link_ticks(facts, size), "ticks");
  return team;
}

// Strips are taken to be as wide as the widest, and to have their share of what
// the matrix takes then.
StripTicks TeamCosts::strip_ticks(MatrixShape shape, const MatrixCost& cost) {
  const StripFacts& facts = of(shape).strips;
  const Int128 all =
      Int128{facts.strip.value()} * facts.strips + facts.head.value();
  const auto share = [&](int64_t flops) {
    return all == 0 ? 0
                    : static_cast<int64_t>(Int128{cost.every_step.value()} *
                                           flops / all);
  };
  StripTicks ticks;
  ticks.sum = share(facts.strip_sum.value());
  ticks.multiply =
      share(facts.strip.value() / facts.segments - facts.strip_sum.value());
  ticks.rest =
      cost.every_step.value() - facts.strips * (ticks.sum + ticks.multiply);
  return ticks;
}

TeamSizes TeamCosts::sizes(MatrixShape shape, const MatrixCost& cost,
                           int32_t most) {
  TeamSizes sizes{whole_matrix(cost.every_step.value())};
  if (rule_.period() > 1) return sizes;
  most = std::min<int32_t>(most, of(shape).strips.strips);
  for (int32_t size = 2; size <= most; size *= 2)
    sizes.push_back(team(shape, cost, size));
  return sizes;
}

}  // namespace canzona

#include "canzona/sim/search.h"

#include <algorithm>
#include <tuple>

#include "canzona/base/text.h"
#include "canzona/sim/search_reason.h"

namespace canzona {
namespace {

// Orders choices of equal time.
auto tie_key(const RankedZero& r) {
  const ZeroSizes& z = r.choice.sizes;
  const ZeroSizes& x = r.choice.experts;
  return std::tuple(r.weight.slow_bytes, r.weight.memory_bytes, z.z1, z.z2,
                    z.z3, x.z1, x.z2, x.z3);
}

ZeroVerdict judge(const ZeroWeight& weight, int64_t cap) {
  if (!weight.refusal.empty()) return ZeroVerdict::kRefused;
  if (cap > 0 && weight.memory_bytes > cap) return ZeroVerdict::kOverCap;
  return ZeroVerdict::kFits;
}

bool is_better(const RankedZero& a, const RankedZero& b) {
  if (a.verdict != b.verdict) return a.verdict < b.verdict;
  if (a.verdict == ZeroVerdict::kFits)
    return a.weight.seconds < b.weight.seconds;
  if (a.verdict == ZeroVerdict::kOverCap)
    return a.weight.memory_bytes < b.weight.memory_bytes;
  return false;
}

// After sorting by time, equal times are adjacent: each group extends as far as
// its first time allows.
void order_equal_times(std::vector<RankedZero>& ranking) {
  auto begin = ranking.begin();
  while (begin != ranking.end() && begin->verdict == ZeroVerdict::kFits) {
    const double limit = begin->weight.seconds * (1 + kEqualTimes);
    const auto end = std::find_if(begin, ranking.end(), [&](const auto& r) {
      return r.verdict != ZeroVerdict::kFits || r.weight.seconds > limit;
    });
    std::stable_sort(begin, end, [](const auto& a, const auto& b) {
      return tie_key(a) < tie_key(b);
    });
    begin = end;
  }
}

}  // namespace

ZeroSearch rank_choices(
    const std::vector<ZeroChoice>& choices, int64_t memory_cap_bytes,
    const std::function<ZeroWeight(const ZeroChoice&)>& weigh) {
  ZeroSearch search;
  search.memory_cap_bytes = memory_cap_bytes;
  for (const ZeroChoice& choice : choices) {
    RankedZero ranked{.choice = choice, .weight = weigh(choice)};
    ranked.verdict = judge(ranked.weight, memory_cap_bytes);
    search.ranking.push_back(std::move(ranked));
  }
  std::stable_sort(search.ranking.begin(), search.ranking.end(), is_better);
  order_equal_times(search.ranking);
  for (RankedZero& ranked : search.ranking)
    ranked.reason = reason_for(ranked, search);
  return search;
}

std::string ZeroSearch::summary() const {
  if (ranking.empty()) return "there is nothing to choose from";
  const RankedZero& first = ranking.front();
  const std::string name = choice_name(first.choice, *this);
  switch (first.verdict) {
    case ZeroVerdict::kFits:
      return cat(name, ": ", first.reason);
    case ZeroVerdict::kOverCap:
      return cat("nothing fits in ", human_bytes(memory_cap_bytes),
                 "; the nearest is ", name, ", which ", first.reason);
    case ZeroVerdict::kRefused:
      return cat("nothing is possible; ", name, ": ", first.reason);
  }
  return {};
}

}  // namespace canzona

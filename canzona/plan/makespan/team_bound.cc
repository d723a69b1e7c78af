#include <algorithm>

#include "canzona/base/units.h"
#include "canzona/plan/makespan/team_sizes.h"

namespace canzona {
namespace {

// The least work of a size whose path is at most `target`; -1 if none is.
int64_t least_work(const TeamSizes& sizes, int64_t target) {
  int64_t least = -1;
  for (const TeamSize& size : sizes)
    if (size.path <= target && (least < 0 || size.work() < least))
      least = size.work();
  return least;
}

bool may_be_reached(std::span<const TeamItem> items, int64_t ranks,
                    int64_t target) {
  Int128 sum = 0;
  for (const TeamItem& item : items) {
    const int64_t work = least_work(item.sizes, target);
    if (work < 0) return false;
    sum += Int128{work} * item.count;
  }
  return sum <= Int128{target} * ranks;
}

// A target that may be reached: every path, and all work on one rank.
int64_t reachable_target(std::span<const TeamItem> items) {
  int64_t sum = 0, longest = 0;
  for (const TeamItem& item : items) {
    int64_t least = INT64_MAX;
    for (const TeamSize& size : item.sizes) {
      least = std::min(least, size.work());
      longest = std::max(longest, size.path);
    }
    sum = checked_add(sum, checked_mul(least, item.count, "ticks"), "ticks");
  }
  return std::max(sum, longest);
}

}  // namespace

const TeamSize* smallest_that_fits(const TeamSizes& sizes, int64_t target) {
  const auto found =
      std::find_if(sizes.begin(), sizes.end(),
                   [&](const TeamSize& size) { return size.path <= target; });
  return found == sizes.end() ? nullptr : &*found;
}

int64_t team_bound(std::span<const TeamItem> items, int64_t ranks) {
  // What a target allows, any larger one allows.
  int64_t low = -1, high = reachable_target(items);
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (may_be_reached(items, ranks, middle) ? high : low) = middle;
  }
  return high;
}

}  // namespace canzona

// Lower bounds on the makespan tell how good a plan can be at best.
//
//   int64_t bound = lower_bound(sizes, ranks, best_known);
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace canzona {

// The combinatorial core of planning, free of tensors and meshes: sizes to be
// dealt to equal ranks so that the largest load (the makespan) is small.

// `count` equal items. Lists of these are sorted by size, largest first, with
// positive sizes, each once.
struct SizeCount {
  int64_t size = 0;
  int64_t count = 0;
  friend bool operator==(const SizeCount&, const SizeCount&) = default;
};

// Matrices that several ranks may share, free of tensors and meshes: what one
// costs on a team of each size.

// A matrix on `size` ranks. Every one of them has `member` work; the head, one
// of them, has `head` more. From the first strip to the last update at least
// `path` passes: the head's work, and sums and factors on their way.
struct TeamSize {
  int32_t size = 1;
  int64_t member = 0;
  int64_t head = 0;
  int64_t path = 0;

  int64_t at_head() const { return member + head; }
  int64_t work() const { return size * member + head; }
  friend auto operator<=>(const TeamSize&, const TeamSize&) = default;
};

// A whole matrix: a team of one.
inline TeamSize whole_matrix(int64_t work) { return {1, work, 0, work}; }

// The sizes that one matrix may have, ascending; the first is 1.
using TeamSizes = std::vector<TeamSize>;

// `count` matrices that cost the same.
struct TeamItem {
  TeamSizes sizes;
  int64_t count = 1;
};

// The smallest size whose path is at most `target`; null if none is.
const TeamSize* smallest_that_fits(const TeamSizes& sizes, int64_t target);

// The least T at which every matrix has a size with path <= T, and the least
// works of such sizes add up to at most ranks * T. No assignment of the items
// has all ranks' work and all paths below it (docs/algorithms.md).
int64_t team_bound(std::span<const TeamItem> items, int64_t ranks);

// The bounded knapsack behind the pattern relaxation: which items, at most
// `count` of each and `capacity` in total, have the largest total value?

// A Pattern is how many of each size one rank takes, and what they are worth.
struct Pattern {
  std::vector<int64_t> counts;
  double value = 0;
};

// Exact, by branch and bound in order of value per size. Sizes of no positive
// value are left out. nullopt if the search exceeds its node limit.
std::optional<Pattern> best_pattern(std::span<const SizeCount> items,
                                    std::span<const double> values,
                                    int64_t capacity);

int64_t load_of(std::span<const SizeCount> items,
                std::span<const int64_t> counts);

// The linear relaxation over load patterns: with patterns of load ≤ T, how many
// ranks are needed if ranks could be split into fractions? Solved by column
// generation (Gilmore and Gomory): the basis holds one pattern per size, the
// knapsack prices new ones.
//
//   PatternSolution s = relax_patterns(items, ranks, T);
//   s.status == kFits: fractions x of patterns cover all items on ≤ `ranks`
//   s.status == kTooSmall: proven impossible, in fractions and hence in ranks

struct PatternSolution {
  enum Status { kFits, kTooSmall, kUnknown };
  Status status = kUnknown;
  std::vector<std::vector<int64_t>> patterns;
  std::vector<double> fractions;  // per pattern
};

// Sizes beyond this number are not relaxed.
inline constexpr size_t kMaxPatternSizes = 8;

PatternSolution relax_patterns(std::span<const SizeCount> items, int64_t ranks,
                               int64_t capacity);

// max(mean, largest, R-th + (R+1)-th largest).
int64_t simple_bound(std::span<const SizeCount> items, int64_t ranks);

// simple_bound and, for at most kMaxPatternSizes sizes, the smallest T for
// which the linear relaxation over all patterns of load ≤ T needs at most
// `ranks` ranks. `upper` is a makespan that is known to be reached.
int64_t lower_bound(std::span<const SizeCount> items, int64_t ranks,
                    int64_t upper);

}  // namespace canzona

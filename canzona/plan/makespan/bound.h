// Lower bounds on the makespan and on the objective of plans with refreshes:
// how good a plan can be at best.
//
//   int64_t bound = lower_bound(sizes, ranks, best_known);
#pragma once

#include <cstddef>
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

// The cost of a matrix on a team of each size, independent of tensors and
// meshes.

// A matrix on `size` ranks. Each of them has `member` work; one of them, the
// head, has `head` more. At least `path` ticks pass from the first strip to the
// last update: the head's work plus the transit of sums and factors.
struct TeamSize {
  int32_t size = 1;
  int64_t member = 0;
  int64_t head = 0;
  int64_t path = 0;

  int64_t at_head() const { return member + head; }
  int64_t work() const { return size * member + head; }
  friend auto operator<=>(const TeamSize&, const TeamSize&) = default;
};

// A whole matrix is a team of one.
inline TeamSize whole_matrix(int64_t work) { return {1, work, 0, work}; }

// The sizes available to one matrix, ascending; the first is 1.
using TeamSizes = std::vector<TeamSize>;

// `count` matrices that cost the same.
struct TeamItem {
  TeamSizes sizes;
  int64_t count = 1;
};

// Returns the smallest size whose path is at most `target`, or null.
const TeamSize* smallest_that_fits(const TeamSizes& sizes, int64_t target);

// Returns the least T at which every matrix has a size with path <= T and the
// least work of such sizes adds up to at most ranks * T. In every assignment of
// the items, some rank's work or some path is at least T (docs/algorithms.md).
int64_t team_bound(std::span<const TeamItem> items, int64_t ranks);

// The bounded knapsack behind the pattern relaxation: which items, at most
// `count` of each and `capacity` in total, have the largest total value?

// How many items of each size one rank takes, and their total value.
struct Pattern {
  std::vector<int64_t> counts;
  double value = 0;
};

// Exact, by branch and bound in order of value per size. Ignores sizes without
// positive value. Returns nullopt if the search exceeds its node limit.
std::optional<Pattern> best_pattern(std::span<const SizeCount> items,
                                    std::span<const double> values,
                                    int64_t capacity);

int64_t load_of(std::span<const SizeCount> items,
                std::span<const int64_t> counts);

// The linear relaxation over load patterns: how many ranks are needed with
// patterns of load ≤ T if fractions of ranks are allowed? Solved by column
// generation (Gilmore and Gomory): the basis holds one pattern per size, and
// the knapsack prices new ones.
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

// Problems with more sizes than this are not relaxed.
inline constexpr size_t kMaxPatternSizes = 8;

PatternSolution relax_patterns(std::span<const SizeCount> items, int64_t ranks,
                               int64_t capacity);

// Returns max(mean, largest, R-th + (R+1)-th largest).
int64_t simple_bound(std::span<const SizeCount> items, int64_t ranks);

// Returns simple_bound or, for at most kMaxPatternSizes sizes, the smallest T
// for which the linear relaxation over all patterns of load ≤ T needs at most
// `ranks` ranks. `upper` is a makespan that is known to be achievable.
int64_t lower_bound(std::span<const SizeCount> items, int64_t ranks,
                    int64_t upper);

// The objective of a plan with refreshes. An item's load has P dimensions, one
// per kind of step in a refresh period: [ordinary step, refresh step of phase
// 0, phase 1, …], or just one where nothing is refreshed. The objective is the
// sum over the period's steps of the largest load in each: Σ_p steps[p] · max_r
// load[r][p].

inline constexpr int32_t kAnyZone = -1;

// Items that are alike in every respect that matters.
struct ItemClass {
  std::vector<int64_t> load;  // P dimensions
  int64_t count = 0;
  int64_t elements = 0;     // of the TP shard; decides bytes on the wire
  int64_t home_bytes = 0;   // master and shard-states, all ranks of the home
  int64_t owner_bytes = 0;  // states at the owner
  int32_t zone = kAnyZone;  // only ranks of this zone may own it
};

// Sets of ranks that may own items, each ascending.
using OwnerSets = std::vector<std::vector<int32_t>>;

// Returns a lower bound on the objective of any assignment.
int64_t objective_bound(const std::vector<ItemClass>& classes,
                        const std::vector<int64_t>& steps,
                        const std::vector<int32_t>& zones, int64_t upper);

// The same for items whose zones are numbers of sets of owners, which may
// overlap.
int64_t objective_bound(const std::vector<ItemClass>& classes,
                        const std::vector<int64_t>& steps, size_t num_ranks,
                        const OwnerSets& sets, int64_t upper);

}  // namespace canzona

// Matrices that several ranks may share, free of tensors and meshes: what one
// costs on a team of each size.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace canzona {

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

}  // namespace canzona

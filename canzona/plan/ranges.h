// The three kinds of range in a plan: an extent of a flat buffer, a copy of one
// extent to another, and a rectangle of a matrix.
//
//   for (const ExtentCopy& copy : pieces) {
//     const ExtentCopy own = copy.to_within(kept);
//     std::copy_n(shard + own.from, own.count, flat + own.to);
//   }
//
// Counts are of elements, rows or slices, and never negative. Values.
#pragma once

#include <algorithm>
#include <cstdint>

namespace canzona {

struct Extent {
  int64_t first = 0;
  int64_t count = 0;

  int64_t end() const { return first + count; }
  bool contains(int64_t i) const { return i >= first && i < end(); }
  // Returns the intersection, possibly empty.
  Extent meet(const Extent& other) const {
    const int64_t begin = std::max(first, other.first);
    return {begin, std::max<int64_t>(std::min(end(), other.end()) - begin, 0)};
  }
  friend bool operator==(const Extent&, const Extent&) = default;
};

// Returns the i-th of k even pieces of a count.
constexpr Extent even_extent(int64_t count, int64_t k, int64_t i) {
  return {count * i / k, count * (i + 1) / k - count * i / k};
}

// `count` elements at `from` are, or are copied, at `to`.
struct ExtentCopy {
  int64_t from = 0;
  int64_t to = 0;
  int64_t count = 0;

  Extent source() const { return {from, count}; }
  Extent target() const { return {to, count}; }
  // Restrict the copy to elements from, or to, an extent.
  ExtentCopy from_within(const Extent& extent) const {
    const Extent both = source().meet(extent);
    return {both.first, to + both.first - from, both.count};
  }
  ExtentCopy to_within(const Extent& extent) const {
    const Extent both = target().meet(extent);
    return {from + both.first - to, both.first, both.count};
  }
  bool is_continued_by(const ExtentCopy& next) const {
    return source().end() == next.from && target().end() == next.to;
  }
  friend bool operator==(const ExtentCopy&, const ExtentCopy&) = default;
};

struct Rectangle {
  int64_t first_row = 0;
  int64_t num_rows = 0;
  int64_t first_col = 0;
  int64_t num_cols = 0;

  int64_t elements() const { return num_rows * num_cols; }
  int64_t end_row() const { return first_row + num_rows; }
  int64_t end_col() const { return first_col + num_cols; }
  friend bool operator==(const Rectangle&, const Rectangle&) = default;
};

}  // namespace canzona

// Boxes of a tensor: in every dimension, `count` elements from `first` on.
//
//   const Box rows{{2, 0}, {2, 6}};
//   rows.elements();                        // 12
//   to_string(rows);                        // "[2:4, 0:6]"
//   intersection(rows, whole_box({3, 6}));  // {{2, 0}, {1, 6}}
//
// Values.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace canzona {

struct Box {
  std::vector<int64_t> first;
  std::vector<int64_t> count;

  int64_t elements() const;
  friend auto operator<=>(const Box&, const Box&) = default;
};

Box whole_box(const std::vector<int64_t>& shape);
// Each dimension as from:to; "[]" for a scalar.
std::string to_string(const Box& box);
std::optional<Box> intersection(const Box& a, const Box& b);

}  // namespace canzona

#include "canzona/base/box.h"

#include <algorithm>

#include "canzona/base/check.h"
#include "canzona/base/text.h"

namespace canzona {

int64_t Box::elements() const {
  int64_t product = 1;
  for (const int64_t side : count) product *= side;
  return product;
}

Box whole_box(const std::vector<int64_t>& shape) {
  return {std::vector<int64_t>(shape.size(), 0), shape};
}

std::string to_string(const Box& box) {
  CANZONA_CHECK_EQ(box.first.size(), box.count.size(), "dimensions of a box");
  std::string text = "[";
  for (size_t d = 0; d < box.first.size(); ++d)
    text +=
        cat(d == 0 ? "" : ", ", box.first[d], ":", box.first[d] + box.count[d]);
  return text + "]";
}

std::optional<Box> intersection(const Box& a, const Box& b) {
  Box out = a;
  for (size_t d = 0; d < a.first.size(); ++d) {
    out.first[d] = std::max(a.first[d], b.first[d]);
    out.count[d] = std::min(a.first[d] + a.count[d], b.first[d] + b.count[d]) -
                   out.first[d];
    if (out.count[d] <= 0) return std::nullopt;
  }
  return out;
}

}  // namespace canzona

#include "canzona/rules/shampoo/blocks.h"

#include <algorithm>

namespace canzona {

AxisSizes merge_sizes(std::span<const int64_t> dims,
                      const BlockingOptions& options) {
  static constexpr int64_t kEmpty[] = {0};
  static constexpr int64_t kOne[] = {1};
  if (std::find(dims.begin(), dims.end(), 0) != dims.end())
    return AxisSizes(kEmpty);
  if (dims.empty()) return AxisSizes(kOne);
  if (options.merge == 0) return AxisSizes(dims);
  auto remain = std::count_if(dims.begin(), dims.end(),
                              [](int64_t size) { return size != 1; });
  AxisSizes merged;
  int64_t running = 1;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i] == 1) continue;
    if (running == 1) {
      running = dims[i];
    } else if (remain > options.merge && running <= options.max_dim / dims[i]) {
      running *= dims[i];
      --remain;
    } else {
      merged.push_back(running);
      running = dims[i];
    }
  }
  merged.push_back(running);
  merged.reverse();
  return merged;
}

}  // namespace canzona

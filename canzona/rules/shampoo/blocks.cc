#include "canzona/rules/shampoo/blocks.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {

BlockedSide::BlockedSide(int64_t length, int64_t max_dim) : length_(length) {
  const int64_t full = length / max_dim;
  const int64_t rest = length % max_dim;
  if (full > 0) kinds_[num_kinds_++] = {full, max_dim};
  if (rest > 0) kinds_[num_kinds_++] = {1, rest};
}

int64_t BlockedSide::num_blocks() const {
  int64_t blocks = 0;
  for (const Kind& kind : kinds()) blocks += kind.count;
  return blocks;
}

size_t BlockedSide::kind_of(int64_t block) const {
  return block < kinds_[0].count ? 0 : 1;
}

Flops BlockedSide::sum_of_squares() const {
  Flops sum;
  for (const Kind& kind : kinds()) {
    sum += Flops(kind.length) * kind.length * kind.count;
  }
  return sum;
}

Flops BlockedSide::sum_of_cubes() const {
  Flops sum;
  for (const Kind& kind : kinds()) {
    sum += Flops(kind.length) * kind.length * kind.length * kind.count;
  }
  return sum;
}

AxisSizes::AxisSizes(std::span<const int64_t> values) {
  for (int64_t value : values) push_back(value);
}

void AxisSizes::push_back(int64_t value) {
  if (order_ == kMostAxes)
    throw UsageError(cat("a tensor has more than ", kMostAxes,
                         " axes; Shampoo takes no more"));
  values_[static_cast<size_t>(order_++)] = value;
}

void AxisSizes::reverse() {
  std::reverse(values_.begin(), values_.begin() + order_);
}

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

Blocking::Blocking(std::span<const int64_t> dims,
                   const BlockingOptions& options)
    : max_dim_(options.max_dim), sizes_(merge_sizes(dims, options)) {
  for (int axis = 0; axis < order(); ++axis)
    sides_[static_cast<size_t>(axis)] = BlockedSide(sizes_[axis], max_dim_);
}

int64_t Blocking::num_blocks() const {
  return checked_mul(blocks_across(0), side(0).num_blocks(), "blocks");
}

int64_t Blocking::blocks_across(int axis) const {
  int64_t blocks = 1;
  for (int other = 0; other < order(); ++other) {
    if (other != axis)
      blocks = checked_mul(blocks, side(other).num_blocks(), "blocks");
  }
  return blocks;
}

Elements Blocking::elements_across(int axis) const {
  Elements product(1);
  for (int other = 0; other < order(); ++other) {
    if (other != axis) product = product * sizes_[other];
  }
  return product;
}

TensorBlock Blocking::block(int64_t number) const {
  TensorBlock block;
  block.number = number;
  block.place = block.start = block.sizes = sizes_;
  for (int axis = order(); axis-- > 0;) {
    const int64_t blocks = side(axis).num_blocks();
    const int64_t place = number % blocks;
    number /= blocks;
    block.place[axis] = place;
    block.start[axis] = place * max_dim_;
    block.sizes[axis] = std::min(max_dim_, sizes_[axis] - block.start[axis]);
  }
  return block;
}

int64_t Blocking::place_in_kind(const TensorBlock& block, int axis) const {
  const BlockedSide& own = side(axis);
  const size_t kind = own.kind_of(block.place[axis]);
  int64_t place = 0;
  for (int other = 0; other < order(); ++other) {
    if (other == axis)
      place =
          place * own.kinds()[kind].count + (kind == 0 ? block.place[axis] : 0);
    else
      place = place * side(other).num_blocks() + block.place[other];
  }
  return place;
}

}  // namespace canzona

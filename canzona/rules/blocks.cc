#include "canzona/rules/blocks.h"

#include <algorithm>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::rules {

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
                         " axes, which is the maximum"));
  values_[static_cast<size_t>(order_++)] = value;
}

void AxisSizes::reverse() {
  std::reverse(values_.begin(), values_.begin() + order_);
}

bool AxisSizes::has_zero() const {
  const auto values = span();
  return std::find(values.begin(), values.end(), 0) != values.end();
}

int64_t AxisSizes::product() const {
  if (has_zero()) return 0;
  int64_t product = 1;
  for (int64_t value : span())
    product = checked_mul(product, value, "elements of a tensor");
  return product;
}

Blocking::Blocking(const AxisSizes& sizes, int64_t max_dim)
    : max_dim_(max_dim), sizes_(sizes) {
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

int64_t Blocking::stack_size(int axis, size_t kind) const {
  return checked_mul(side(axis).kinds()[kind].count, blocks_across(axis),
                     "blocks");
}

StackPlace Blocking::stack_place(const TensorBlock& block, int axis) const {
  StackPlace found;
  found.kind = side(axis).kind_of(block.place[axis]);
  found.stack = stack_size(axis, found.kind);
  const bool edge = found.kind > 0;
  for (int other = 0; other < order(); ++other) {
    int64_t extent = side(other).num_blocks();
    int64_t place = block.place[other];
    if (other == axis) {
      extent = side(axis).kinds()[found.kind].count;
      if (edge) place = 0;
    }
    found.place = found.place * extent + place;
  }
  return found;
}

int64_t Blocking::block_at(int axis, size_t kind, int64_t place) const {
  int64_t inside = 1;  // number of blocks over the axes after it
  for (int other = axis + 1; other < order(); ++other)
    inside *= side(other).num_blocks();
  const int64_t along = side(axis).kinds()[kind].count;
  const int64_t first = kind > 0 ? side(axis).kinds()[0].count : 0;
  const int64_t outside = place / inside / along;
  const int64_t here = first + place / inside % along;
  return (outside * side(axis).num_blocks() + here) * inside + place % inside;
}

FactorLayout::FactorLayout(const Blocking& blocking, const States& states)
    : blocking_(blocking),
      states_per_kind_(states.states_per_kind),
      begin_state_(states.first_state),
      end_state_(states.first_state) {
  first_state_.fill(-1);
  for (int axis = 0; axis < blocking_.order(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    if (!states.axes[at]) continue;
    ++num_factors_;
    first_state_[at] = end_state_;
    end_state_ += states_per_kind_ *
                  static_cast<int>(blocking_.side(axis).kinds().size());
  }
}

int64_t FactorLayout::num_counters() const {
  return checked_mul(blocking_.num_blocks(), num_factors_, "factors");
}

FactorPlace FactorLayout::place(const TensorBlock& block, int axis) const {
  CANZONA_CHECK(has_factor(axis), "axis ", axis);
  const StackPlace at = blocking_.stack_place(block, axis);
  FactorPlace found;
  found.first_state = first_state_[static_cast<size_t>(axis)] +
                      states_per_kind_ * static_cast<int>(at.kind);
  found.place = at.place;
  found.stack = at.stack;
  found.side = block.sizes[axis];
  found.failures = block.number * num_factors_;
  for (int before = 0; before < axis; ++before)
    if (has_factor(before)) ++found.failures;
  return found;
}

bool is_alike(const FactorLayout& alone, const FactorLayout& whole,
              const TensorBlock& block) {
  const Blocking& own = alone.blocking();
  if (own.order() != whole.blocking().order() || own.num_blocks() != 1)
    return false;
  for (int axis = 0; axis < own.order(); ++axis)
    if (own.sizes()[axis] != block.sizes[axis] ||
        alone.has_factor(axis) != whole.has_factor(axis))
      return false;
  return true;
}

std::vector<BlockState> states_of_block(const FactorLayout& factors,
                                        int64_t number, int counters,
                                        const std::vector<StateFact>& whole) {
  const TensorBlock block = factors.blocking().block(number);
  std::vector<BlockState> out;
  const auto add = [&](int state, std::vector<int64_t> first) {
    const StateFact& fact = whole[static_cast<size_t>(state)];
    if (fact.lives != Lives::kWithOwner) return;
    first.resize(fact.shape.size(), 0);
    out.push_back({fact.name, fact.shape, std::move(first)});
  };
  const std::vector<int64_t> start = {block.start[0], block.start[1]};
  for (int s = 0; s < factors.begin_state(); ++s) add(s, start);
  for (int axis = 0; axis < factors.blocking().order(); ++axis) {
    if (!factors.has_factor(axis)) continue;
    const FactorPlace at = factors.place(block, axis);
    for (int s = 0; s < factors.states_per_kind(); ++s)
      add(at.first_state + s, {at.place});
  }
  for (int s = factors.end_state(); s < static_cast<int>(whole.size()); ++s) {
    // Counters have one row per block, or all blocks share one row.
    const bool in_rows = whole[static_cast<size_t>(s)].shape.size() > 1;
    if (s != counters)
      add(s, start);
    else
      add(s, {in_rows ? number : number * factors.num_factors()});
  }
  return out;
}

StateFact owned_state(std::string name, std::vector<int64_t> shape,
                      Initially initially) {
  return {std::move(name), std::move(shape), "fp32", Lives::kWithOwner,
          initially};
}

int helped_axis(const FactorLayout& factors) {
  const Blocking& blocking = factors.blocking();
  if (blocking.order() != 2 || blocking.empty() || factors.num_factors() != 2 ||
      blocking.num_blocks() != 1)
    return -1;
  return blocking.sizes()[0] > blocking.sizes()[1] ? 0 : 1;
}

StripFacts facts_of_helper(const FactorLayout& factors, int axis, int period) {
  const int64_t d = factors.blocking().sizes()[axis];
  const int64_t e = factors.blocking().sizes()[1 - axis];
  StripFacts facts;
  facts.strip_sum = cubic(d, d, e) + cubic(e, e, d);
  facts.segments = 1;
  facts.sum_elements = (Elements(d) * (d + 1)).value() / 2;
  facts.rounded_bytes = kBytesPerFp32;
  facts.factors_at_refresh = period > 1;
  return facts;
}

TeamState whole_state(StateFact whole, bool given) {
  TeamState state;
  state.in_matrix = {whole.name, whole.shape,
                     std::vector<int64_t>(whole.shape.size(), 0)};
  state.given = given;
  state.own = std::move(whole);
  return state;
}

std::vector<TeamState> states_with_helper(const FactorLayout& factors, int axis,
                                          std::vector<StateFact> owned,
                                          int counters, int result,
                                          bool is_helper) {
  std::vector<TeamState> states;
  if (!is_helper) {
    for (StateFact& whole : owned)
      states.push_back(whole_state(std::move(whole), true));
    return states;
  }
  const FactorPlace at = factors.place(factors.blocking().block(0), axis);
  const auto copy_of = [&](int number) {
    states.push_back(
        whole_state(std::move(owned[static_cast<size_t>(number)]), false));
  };
  // The helper counts the failures of its own factor. A matrix of one block has
  // its counters along the last dimension, however many there are before it.
  copy_of(counters);
  TeamState& counter = states.back();
  CANZONA_CHECK(at.failures < counter.in_matrix.shape.back(), "counter ",
                at.failures, " of ", counter.in_matrix.shape.back());
  std::ranges::fill(counter.own.shape, 1);
  counter.in_matrix.first.back() = at.failures;
  if (result >= 0) copy_of(result);
  return states;
}

}  // namespace canzona::rules

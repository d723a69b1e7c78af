// A tensor cut into blocks: every axis is cut into pieces of at most max_dim,
// and each block has its own factors. There may be too many blocks to iterate
// over, but at most two lengths along an axis: full blocks and a shorter one at
// the end. Everything is therefore counted per kind of length.
//
//   Blocking cut(AxisSizes(dims), 48);   // of 64 x 147
//   cut.num_blocks()   2 · 4, numbered with axis 0 outermost
//   cut.block(7)       starts at 48 144, sizes 16 3
//
// These types never use the heap, because every step constructs them anew.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "canzona/base/rooms.h"
#include "canzona/base/units.h"
#include "canzona/rules/facts.h"

namespace canzona::rules {

class BlockedSide {
 public:
  struct Kind {
    int64_t count;
    int64_t length;
    friend bool operator==(const Kind&, const Kind&) = default;
  };

  BlockedSide() = default;
  BlockedSide(int64_t length, int64_t max_dim);

  int64_t num_blocks() const;
  int64_t length() const { return length_; }
  // Full blocks first, then the shorter one.
  std::span<const Kind> kinds() const { return {kinds_.data(), num_kinds_}; }
  size_t kind_of(int64_t block) const;
  // Over all blocks; checked.
  Flops sum_of_squares() const;
  Flops sum_of_cubes() const;

 private:
  int64_t length_ = 0;
  std::array<Kind, 2> kinds_{};
  size_t num_kinds_ = 0;
};

inline constexpr int kMostAxes = 8;

// A few numbers, one per axis.
class AxisSizes {
 public:
  AxisSizes() = default;
  // UsageError if there are more than kMostAxes.
  explicit AxisSizes(std::span<const int64_t> values);

  int order() const { return order_; }
  int64_t& operator[](int axis) { return values_[static_cast<size_t>(axis)]; }
  int64_t operator[](int axis) const {
    return values_[static_cast<size_t>(axis)];
  }
  void push_back(int64_t value);
  void reverse();
  bool has_zero() const;
  int64_t product() const;  // checked; 0 if any is
  std::span<const int64_t> span() const {
    return {values_.data(), static_cast<size_t>(order_)};
  }

 private:
  std::array<int64_t, kMostAxes> values_{};
  int order_ = 0;
};

struct TensorBlock {
  int64_t number = 0;
  AxisSizes place;  // which block along each axis
  AxisSizes start;  // its first element along each axis
  AxisSizes sizes;
};

// The factors of an axis that have equal length form one stack, in block order.
struct StackPlace {
  size_t kind = 0;    // of length
  int64_t place = 0;  // in the stack
  int64_t stack = 0;  // matrices in it
};

class Blocking {
 public:
  static constexpr int64_t kUncut = std::numeric_limits<int64_t>::max();

  Blocking(const AxisSizes& sizes, int64_t max_dim);

  int order() const { return sizes_.order(); }
  const AxisSizes& sizes() const { return sizes_; }
  const BlockedSide& side(int axis) const {
    return sides_[static_cast<size_t>(axis)];
  }
  bool empty() const { return sizes_.has_zero(); }
  int64_t elements() const { return sizes_.product(); }
  int64_t num_blocks() const;                // checked
  int64_t blocks_across(int axis) const;     // product over the other axes
  Elements elements_across(int axis) const;  // product of their sizes
  TensorBlock block(int64_t number) const;
  int64_t stack_size(int axis, size_t kind) const;  // checked
  StackPlace stack_place(const TensorBlock& block, int axis) const;
  // The number of the block at that place of a stack.
  int64_t block_at(int axis, size_t kind, int64_t place) const;

 private:
  int64_t max_dim_;
  AxisSizes sizes_;
  std::array<BlockedSide, kMostAxes> sides_;
};

// A FactorLayout says where the factors of a tensor's blocks lie in its owner's
// states. Each axis that has factors keeps `states_per_kind` states per kind of
// length: the factors first, then what is computed from them.
//
//   axis 0, full blocks   L inv_L            stacks of count x d x d
//   axis 0, shorter ones  L_edge inv_L_edge
//   axis 1 …
//
//   FactorLayout factors(
//       blocking, {.axes = 0b11, .states_per_kind = 2, .first_state = 1});
//   FactorPlace at = factors.place(blocking.block(3), 0);
//
// Never uses the heap; every step constructs it anew.

// One factor of length `side`: number `place` of the `stack` matrices in state
// `first_state`. Results computed from it are at the same place of the states
// that follow.
struct FactorPlace {
  int first_state = 0;
  int64_t place = 0;
  int64_t stack = 0;
  int64_t side = 0;
  // Index among the counters of all factors, one row per block.
  int64_t failures = 0;
};

class FactorLayout {
 public:
  struct States {
    std::bitset<kMostAxes> axes;  // those that have factors
    int states_per_kind = 2;
    int first_state = 0;
  };
  FactorLayout(const Blocking& blocking, const States& states);

  const Blocking& blocking() const { return blocking_; }
  int num_factors() const { return num_factors_; }  // of one block
  bool has_factor(int axis) const {
    return first_state_[static_cast<size_t>(axis)] >= 0;
  }
  int states_per_kind() const { return states_per_kind_; }
  int begin_state() const { return begin_state_; }  // the first of them
  int end_state() const { return end_state_; }      // one past the last
  // Over all blocks; checked.
  int64_t num_counters() const;
  FactorPlace place(const TensorBlock& block, int axis) const;

 private:
  Blocking blocking_;
  int states_per_kind_;
  int num_factors_ = 0;
  int begin_state_ = 0;
  int end_state_ = 0;
  std::array<int, kMostAxes> first_state_{};  // -1: no factors
};

// An fp32 state kept at the owner.
StateFact owned_state(std::string name, std::vector<int64_t> shape,
                      Initially initially = Initially::kZero);

// Facts about matrices that split into the blocks of a layout.

// Where the states of a block's owner lie in those of the whole matrix, listed
// in `whole`: factors at their places, failure counts in state `counters`, and
// for all other states the elements at the block's position.
std::vector<BlockState> states_of_block(const FactorLayout& factors,
                                        int64_t number, int counters,
                                        const std::vector<StateFact>& whole);

// True if a matrix with the block's sides is not cut and has the same factors.
bool is_alike(const FactorLayout& alone, const FactorLayout& whole,
              const TensorBlock& block);

// The sides of the blocks, if each block is equivalent to a matrix of its own;
// else `shape`. A short block at an end may be merged into a vector, which has
// different factors. `layout_of` returns the factors of a shape.
template <class LayoutOf>
MatrixShape independent_block(MatrixShape shape, const LayoutOf& layout_of) {
  const FactorLayout whole = layout_of(shape);
  const Blocking& blocking = whole.blocking();
  const bool is_matrix = blocking.order() == 2 && !blocking.empty() &&
                         blocking.sizes()[0] == shape.rows &&
                         blocking.sizes()[1] == shape.cols;
  if (!is_matrix || blocking.num_blocks() == 1) return shape;
  // The four corner blocks cover all kinds.
  const int64_t down = blocking.side(0).num_blocks();
  const int64_t across = blocking.side(1).num_blocks();
  for (const int64_t number :
       {int64_t{0}, across - 1, (down - 1) * across, down * across - 1}) {
    const TensorBlock block = blocking.block(number);
    if (!is_alike(layout_of({block.sizes[0], block.sizes[1]}), whole, block))
      return shape;
  }
  const TensorBlock first = blocking.block(0);
  return {first.sizes[0], first.sizes[1]};
}

// Facts about a matrix with two factors whose owner may have a helper
// (facts.h).

// Returns the axis of the factor that a helper takes: that of the longer side,
// of a square the columns'; -1 unless this is a matrix of one block with two
// factors.
int helped_axis(const FactorLayout& factors);

// Returns what follows from the axis: the triangle that the helper gets.
StripFacts facts_of_helper(const FactorLayout& factors, int axis, int period);

// A state of which a rank keeps all.
TeamState whole_state(StateFact whole, bool given);

// Returns the states that an owner keeps, all of `owned`, or that its helper
// does: copies of its count of failures, in state `counters`, and, unless
// `result` is negative, of state `result`.
std::vector<TeamState> states_with_helper(const FactorLayout& factors, int axis,
                                          std::vector<StateFact> owned,
                                          int counters, int result,
                                          bool is_helper);

}  // namespace canzona::rules

// How SOAP sees a tensor: its axes after merging, which of them have a factor,
// the blocks that long axes are cut into, and where all of that lies in the
// states. One list of states for facts and arithmetic alike:
//
//   exp_avg, exp_avg_sq                     as the tensor; the first if beta1
//   per axis L, Q_L (, eigenvalues_L)       factor, basis, its eigenvalues
//   grafting_avg_sq                         as the tensor, if grafting
//   refresh_failures                        one number per factor
//
// Axes of a matrix or vector are called L and R, those of other tensors 0, 1,
// 2 (F_0, Q_0). Where sides are cut, factors of equal length are one stack, in
// the order of blocks, the last dim running fastest; those of shorter blocks at
// the end of an axis are named "…_edge".
//
// Nothing here allocates: a layout is made anew for every call.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "canzona/rules/soap/options.h"

namespace canzona {

inline constexpr int kSoapMaxOrder = 8;

struct SoapAxis {
  int64_t length = 1;
  int64_t block = 1;  // length of all blocks but a shorter last one
  bool has_factor = false;
  int first_state = 0;  // of the full blocks' factors; the edge's follow

  int64_t num_full() const { return length / block; }
  int64_t edge() const { return length % block; }  // 0: none
  int64_t num_blocks() const { return num_full() + (edge() > 0 ? 1 : 0); }
};

// A block of a tensor, and where its factors are.
struct SoapBlock {
  std::array<int64_t, kSoapMaxOrder> start{};
  std::array<int64_t, kSoapMaxOrder> length{};
  int order = 0;

  std::span<const int64_t> dims() const {
    return {length.data(), static_cast<size_t>(order)};
  }
  int64_t elements() const;
};

// States of the factor of one block and axis: `first_state` is that of the
// factors, bases and eigenvalues follow; `place` is its place in each stack.
struct SoapFactorPlace {
  int first_state = 0;
  int64_t place = 0;
  int64_t failure = 0;  // place in refresh_failures
};

class SoapLayout {
 public:
  // UsageError if the tensor has too many dims or counts do not fit 64 bits.
  SoapLayout(const SoapOptions& options, std::span<const int64_t> dims);

  int order() const { return order_; }
  const SoapAxis& axis(int i) const { return axes_[static_cast<size_t>(i)]; }
  bool is_empty() const;
  int64_t elements() const;
  int64_t num_blocks() const;
  int num_factors() const { return num_factors_; }  // of one block
  int states_per_factor() const { return states_per_factor_; }
  // How many factors of the axis's full (or edge) length there are.
  int64_t stack_size(int axis, bool edge) const;

  SoapBlock block(int64_t number) const;
  SoapFactorPlace place(int64_t block_number, int axis) const;

  // Places in the list of states.
  int exp_avg_sq() const { return exp_avg_sq_; }
  int grafting() const { return grafting_; }
  int refresh_failures() const { return refresh_failures_; }

 private:
  void merge(int64_t max_dim);
  void place_factors(const SoapOptions& options, bool is_vector);
  int64_t block_coordinate(int64_t number, int axis) const;

  std::array<SoapAxis, kSoapMaxOrder> axes_{};
  int order_ = 0;
  int num_factors_ = 0;
  int states_per_factor_ = 2;
  int exp_avg_sq_ = 0;
  int grafting_ = 0;
  int refresh_failures_ = 0;
};

}  // namespace canzona

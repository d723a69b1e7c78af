#include "canzona/rules/soap/layout.h"

#include <algorithm>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"

namespace canzona {

int64_t SoapBlock::elements() const {
  int64_t product = 1;
  for (int64_t d : dims()) product *= d;
  return product;
}

SoapLayout::SoapLayout(const SoapOptions& options,
                       std::span<const int64_t> dims) {
  if (dims.size() > kSoapMaxOrder)
    throw UsageError(
        cat(dims.size(), " dims, at most ", kSoapMaxOrder, " can be taken"));
  order_ = static_cast<int>(std::max<size_t>(dims.size(), 1));
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) throw UsageError("negative side");
    axes_[i].length = dims[i];
  }
  const bool is_vector = order_ == 1;
  if (options.merges_dims && !is_vector && !is_empty()) merge(options.max_dim);
  place_factors(options, is_vector);
}

// From the first dim on, neighbours are joined while their product is allowed.
// Dims of one vanish.
void SoapLayout::merge(int64_t max_dim) {
  const std::array<SoapAxis, kSoapMaxOrder> given = axes_;
  const int num_given = order_;
  order_ = 0;
  int64_t joined = 1;
  const auto emit = [&](int64_t length) {
    axes_[static_cast<size_t>(order_++)].length = length;
  };
  for (int i = 0; i < num_given; ++i) {
    const int64_t next = given[static_cast<size_t>(i)].length;
    if (joined <= max_dim / next) {
      joined *= next;
    } else if (joined > 1) {
      emit(joined);
      joined = next;
    } else {
      emit(next);
    }
  }
  if (joined > 1 || order_ == 0) emit(joined);
}

void SoapLayout::place_factors(const SoapOptions& options, bool is_vector) {
  const bool wanted = !is_empty() && (!is_vector || options.precondition_1d);
  exp_avg_sq_ = options.has_first_moment() ? 1 : 0;
  states_per_factor_ = options.keeps_eigenvalues() ? 3 : 2;
  int next_state = exp_avg_sq_ + 1;
  for (int i = 0; i < order_; ++i) {
    SoapAxis& axis = axes_[static_cast<size_t>(i)];
    const bool is_long = axis.length > options.max_dim;
    const bool cut = is_long && options.cuts_long_sides && wanted;
    axis.block = cut ? options.max_dim : std::max<int64_t>(axis.length, 1);
    axis.has_factor = wanted && (!is_long || cut);
    if (!axis.has_factor) continue;
    ++num_factors_;
    axis.first_state = next_state;
    next_state += states_per_factor_ * (axis.edge() > 0 ? 2 : 1);
  }
  grafting_ = next_state;
  refresh_failures_ = next_state + (options.has_grafting_moment() ? 1 : 0);
}

bool SoapLayout::is_empty() const {
  for (int i = 0; i < order_; ++i)
    if (axis(i).length == 0) return true;
  return false;
}

int64_t SoapLayout::elements() const {
  if (is_empty()) return 0;
  int64_t product = 1;
  for (int i = 0; i < order_; ++i)
    product = checked_mul(product, axis(i).length, "elements of a tensor");
  return product;
}

int64_t SoapLayout::num_blocks() const {
  int64_t product = 1;
  for (int i = 0; i < order_; ++i)
    product = checked_mul(product, axis(i).num_blocks(), "blocks of a tensor");
  return product;
}

int64_t SoapLayout::stack_size(int along, bool edge) const {
  int64_t product = edge ? 1 : axis(along).num_full();
  for (int i = 0; i < order_; ++i)
    if (i != along)
      product = checked_mul(product, axis(i).num_blocks(), "factors");
  return product;
}

int64_t SoapLayout::block_coordinate(int64_t number, int along) const {
  for (int i = order_ - 1; i > along; --i) number /= axis(i).num_blocks();
  return number % axis(along).num_blocks();
}

SoapBlock SoapLayout::block(int64_t number) const {
  SoapBlock block;
  block.order = order_;
  for (int i = 0; i < order_; ++i) {
    const auto at = static_cast<size_t>(i);
    block.start[at] = block_coordinate(number, i) * axis(i).block;
    block.length[at] =
        std::min(axis(i).block, axis(i).length - block.start[at]);
  }
  return block;
}

SoapFactorPlace SoapLayout::place(int64_t block_number, int along) const {
  const SoapAxis& own = axis(along);
  const bool edge = block_coordinate(block_number, along) == own.num_full();
  SoapFactorPlace found;
  found.first_state = own.first_state + (edge ? states_per_factor_ : 0);
  int factors_before = 0;
  for (int i = 0; i < order_; ++i) {
    const int64_t coordinate = block_coordinate(block_number, i);
    const int64_t extent = i != along ? axis(i).num_blocks()
                           : edge     ? 1
                                      : own.num_full();
    found.place = found.place * extent + (i == along && edge ? 0 : coordinate);
    if (i < along && axis(i).has_factor) ++factors_before;
  }
  found.failure = block_number * num_factors_ + factors_before;
  return found;
}

}  // namespace canzona

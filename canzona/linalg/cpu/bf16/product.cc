#include "canzona/linalg/cpu/bf16/product.h"

#include <new>

namespace canzona::linalg {
namespace {

constexpr int64_t kPackedBlockBytes = kBlockElements * 2;
// Half of an L2 cache of 2 MB; the rest is for columns and results.
constexpr int64_t kGroupBytes = 1000 << 10;
constexpr int64_t kMostGroupRows = 16;
// Deeper sums are cut, because otherwise a group would have too few rows to
// hide the traffic of the columns.
constexpr int64_t kMostDepth = 50;
constexpr int64_t kGroupCols = 8;
constexpr std::align_val_t kPackedAlignment{4096};

constexpr int64_t ceil_divide(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Returns the size of a part when `count` is divided into equal parts of at
// most `most`.
constexpr int64_t equal_part(int64_t count, int64_t most) {
  const int64_t parts = std::max<int64_t>(ceil_divide(count, most), 1);
  return std::max<int64_t>(ceil_divide(count, parts), 1);
}

}  // namespace

int64_t product_chunk(int64_t depth) { return equal_part(depth, kMostDepth); }

ProductPlan plan_product(const Factors& factors) {
  ProductPlan plan;
  int64_t chunk = 1;
  for (int s = 0; s < factors.strips.count; ++s)
    chunk = std::max(chunk, product_chunk(factors.strips.end(s, factors.depth) -
                                          factors.strips.begin(s)));
  plan.whole = chunk >= factors.depth;
  const int64_t fitting = kGroupBytes / (chunk * kPackedBlockBytes);
  plan.group_rows = equal_part(factors.rows, std::min(fitting, kMostGroupRows));
  if (!plan.whole) {
    plan.group_rows = equal_part(factors.rows, std::min<int64_t>(fitting, 7));
    plan.group_cols = kGroupCols;
  } else {
    plan.group_cols = std::max<int64_t>(factors.cols, 1);
  }
  return plan;
}

void BlockProducts::Free::operator()(float* memory) const {
  ::operator delete(memory, kPackedAlignment);
}

BlockProducts::BlockProducts(const BlockKernel& kernel)
    : kernel_(kernel),
      slots_(static_cast<float*>(::operator new(
          (Strips::kMostSums * kSlots + 1) * kBlockElements * sizeof(float),
          kPackedAlignment))) {}

BlockProduct BlockProducts::block(const Factors& factors, int64_t i, int64_t j,
                                  int64_t k, int64_t depth) {
  BlockProduct product;
  product.left = factors.left + (i * factors.depth + k) * kBlockElements;
  product.right = factors.right + (j * factors.depth + k) * kBlockElements;
  product.depth = depth;
  // It is the same for (i, j) and (j, i), so that full products of symmetric
  // factors are symmetric too.
  product.backward = (i + j) % 2 != 0;
  return product;
}

void BlockProducts::prefetch_column(BlockProduct& product, int64_t share,
                                    int64_t num_shares, int64_t column_stride) {
  constexpr int64_t kLineElements = 32;
  const int64_t lines = product.depth * kBlockElements / kLineElements;
  const int64_t per_step =
      ceil_divide(ceil_divide(lines, num_shares), product.depth);
  const int64_t first = share * per_step * product.depth;
  if (first >= lines) return;
  product.prefetch = product.right + column_stride + first * kLineElements;
  product.prefetch_lines = static_cast<int>(per_step);
}

float* BlockProducts::next_slot(bool whole) {
  ++slot_;
  return slots_.get() + slot_ % (whole ? 2 : kSlots) * kBlockElements;
}

float* BlockProducts::spare_slot() {
  return slots_.get() + Strips::kMostSums * kSumStride;
}

Epilogue BlockProducts::additions_after(float* slot, int strip) {
  Epilogue additions;
  additions.target = Target::kNothing;
  additions.acc = slot;
  additions.from_sum = TreeOrder::index(strip);
  additions.to_sum = TreeOrder::last(strip);
  additions.sum_stride = kSumStride;
  return additions;
}

}  // namespace canzona::linalg

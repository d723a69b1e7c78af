// The loops of a product over blocks, common to all kernels.
//
//   products.run({a.rows, b.transposed, m, m, depth}, Half::kTriangle,
//                [&](int64_t i, int64_t j) { return Epilogue{…}; });
//   products.sum({…}, Half::kTriangle,
//                [&](int64_t i, int64_t j, const float* sum) { … });
//
// Groups of left rows stay in the L2 cache while the right factor's columns
// stream through; neighbouring blocks walk their sums in opposite directions,
// so that each finds the end of the column still in the L1 cache. The epilogue
// of a block runs during the next block. The depth may be cut into strips: each
// is summed separately, as if there were no others, and the sums are added by
// the tree (operand.h) while they are in cache, as part of the epilogue. All
// orders depend on the shape and its strips alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "canzona/linalg/cpu/bf16/kernel.h"
#include "canzona/linalg/operand.h"

namespace canzona::linalg {

// Counts are in blocks. Block (i, k) of the left factor is the i·depth + k-th,
// block (k, j) of the right factor the j·depth + k-th.
struct Factors {
  const Bf16* left = nullptr;
  const Bf16* right = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t depth = 0;
  Strips strips{};  // of the depth
};

// A ProductPlan says how a product is cut, in blocks.
struct ProductPlan {
  int64_t group_rows = 1;
  int64_t group_cols = 1;
  bool whole = true;  // every sum is completed at once
};
// Long sums are cut into chunks, those of a strip by its own depth alone.
int64_t product_chunk(int64_t depth);

ProductPlan plan_product(const Factors& factors);

class BlockProducts {
 public:
  explicit BlockProducts(const BlockKernel& kernel);

  // make_epilogue(i, j) says what to do with block (i, j); its acc and spare
  // are set here. A triangle consists of the blocks with j <= i.
  template <class MakeEpilogue>
  void run(const Factors& factors, Half half,
           const MakeEpilogue& make_epilogue) {
    run_groups(factors, half,
               [&](int64_t i, int64_t j, const Epilogue& additions) {
                 epilogue_ = make_epilogue(i, j);
                 epilogue_.acc = additions.acc;
                 epilogue_.spare = spare_slot();
                 epilogue_.from_sum = additions.from_sum;
                 epilogue_.to_sum = additions.to_sum;
                 epilogue_.sum_stride = additions.sum_stride;
                 return true;
               });
  }

  // take(i, j, sum) gets block (i, j) of the plain sums, 32 x 32.
  template <class Take>
  void sum(const Factors& factors, Half half, const Take& take) {
    run_groups(factors, half,
               [&](int64_t i, int64_t j, const Epilogue& additions) {
                 kernel_.finish(additions);
                 take(i, j, static_cast<const float*>(additions.acc));
                 return false;
               });
  }

 private:
  struct Group {
    int64_t i = 0, i_end = 0, j = 0, j_end = 0;
    bool triangle = false;
  };
  struct Free {
    void operator()(float* memory) const;
  };

  // finish(i, j, additions) gets what is left to add to the sum, and returns
  // whether an epilogue is left to run.
  template <class Finish>
  void run_groups(const Factors& factors, Half half, const Finish& finish) {
    const ProductPlan plan = plan_product(factors);
    const bool triangle = half == Half::kTriangle;
    kernel_.begin();
    pending_ = false;
    for (int64_t i = 0; i < factors.rows; i += plan.group_rows) {
      const int64_t i_end = std::min(i + plan.group_rows, factors.rows);
      const int64_t cols = triangle ? i_end : factors.cols;
      for (int64_t j = 0; j < cols; j += plan.group_cols) {
        const int64_t j_end = std::min(j + plan.group_cols, cols);
        run_group({i, i_end, j, j_end, triangle}, factors, plan.whole, finish);
      }
    }
    if (pending_) kernel_.finish(epilogue_);
    kernel_.end();
  }

  // A chunk of the depth, and whether it begins or ends a strip.
  struct Chunk {
    int strip = 0;
    int64_t k = 0, depth = 0;
    bool resume = false;
    bool ends_strip = false, ends_sum = false;
  };

  template <class Finish>
  void run_group(const Group& group, const Factors& factors, bool whole,
                 const Finish& finish) {
    const int64_t first_slot = slot_ + 1;
    for (int s = 0; s < factors.strips.count; ++s) {
      const int64_t begin = factors.strips.begin(s);
      const int64_t end = factors.strips.end(s, factors.depth);
      const int64_t most = product_chunk(end - begin);
      for (int64_t k = begin; k < end; k += most) {
        const int64_t depth = std::min(most, end - k);
        const bool ends = k + depth == end;
        slot_ = whole ? slot_ : first_slot - 1;
        run_chunk(group, factors, whole,
                  {s, k, depth, k > begin, ends,
                   ends && s + 1 == factors.strips.count},
                  finish);
      }
    }
  }

  template <class Finish>
  void run_chunk(const Group& group, const Factors& factors, bool whole,
                 const Chunk& chunk, const Finish& finish) {
    for (int64_t j = group.j; j < group.j_end; ++j) {
      const int64_t start = group.triangle ? std::max(group.i, j) : group.i;
      for (int64_t i = start; i < group.i_end; ++i) {
        BlockProduct product = block(factors, i, j, chunk.k, chunk.depth);
        product.resume = chunk.resume;
        float* slot = next_slot(whole);
        product.acc = slot + TreeOrder::index(chunk.strip) * kSumStride;
        if (j + 1 < group.j_end)
          prefetch_column(product, i - start, group.i_end - start,
                          factors.depth * kBlockElements);
        kernel_.multiply(product, pending_ ? &epilogue_ : nullptr);
        pending_ = false;
        if (!chunk.ends_strip) continue;
        const Epilogue additions = additions_after(slot, chunk.strip);
        if (chunk.ends_sum) {
          pending_ = finish(i, j, additions);
        } else if (additions.from_sum > additions.to_sum) {
          epilogue_ = additions;
          pending_ = true;
        }
      }
    }
  }

  static BlockProduct block(const Factors& factors, int64_t i, int64_t j,
                            int64_t k, int64_t depth);
  // Prefetches its share of the next column of the right factor.
  static void prefetch_column(BlockProduct& product, int64_t share,
                              int64_t num_shares, int64_t column_stride);
  // Sums that wait for another chunk need separate slots; otherwise two
  // alternate, one being summed while the other is finished.
  float* next_slot(bool whole);
  float* spare_slot();
  // Returns the additions that join the sum of a strip to those before it; the
  // first sum is the slot.
  static Epilogue additions_after(float* slot, int strip);

  static constexpr int64_t kSlots = 64;
  static constexpr int64_t kSumStride = kSlots * kBlockElements;

  const BlockKernel& kernel_;
  std::unique_ptr<float, Free> slots_;
  int64_t slot_ = 0;
  bool pending_ = false;
  Epilogue epilogue_;
};

}  // namespace canzona::linalg

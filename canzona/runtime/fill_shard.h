// Fills a tp shard of a tensor with numbers that depend on the logical
// position alone, so that every mesh gets the same tensor.
//
//   fill_shard(tensor, mesh.tp, place.t, shard,
//              [&](uint64_t i) { return uniform_at(seed, i); });
#pragma once

#include <cstdint>
#include <span>

#include "canzona/base/check.h"
#include "canzona/plan/schedule/kept.h"

namespace canzona {

// Calls `number(i)` for every logical element i of the shard.
template <class Number>
void fill_shard(const Tensor& tensor, int32_t tp, int32_t t,
                std::span<float> shard, const Number& number) {
  int64_t filled = 0;
  for (const ExtentCopy& run : logical_runs(tensor, tp, t)) {
    float* out = shard.data() + run.from;
    for (int64_t i = 0; i < run.count; ++i)
      out[i] = number(static_cast<uint64_t>(run.to + i));
    filled += run.count;
  }
  CANZONA_CHECK(filled == std::ssize(shard), "the shard of ", tensor.name,
                " has ", filled, " elements, not ", shard.size());
}

}  // namespace canzona

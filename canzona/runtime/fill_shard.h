// Fills a tp shard of a tensor with numbers that depend on the logical
// position alone, so that every mesh gets the same tensor.
//
//   fill_shard(tensor, mesh.tp, place.t, shard,
//              [&](uint64_t i) { return uniform_at(seed, i); });
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/base/check.h"
#include "canzona/linalg/number_stream.h"
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

// Calls use(from, rows) for runs of a shard that follow each other at equal
// distances, both in the shard, where the first one begins at `from`, and in
// the whole tensor, as one: those of a cut tensor mostly do.
template <class Use>
void for_number_rows(std::span<const ExtentCopy> runs, const Use& use) {
  for (size_t i = 0; i < runs.size();) {
    const ExtentCopy& first = runs[i];
    NumberRows rows{static_cast<uint64_t>(first.to), first.count, 1, 0, 0};
    size_t next = i + 1;
    for (; next < runs.size() && runs[next].count == first.count; ++next) {
      const int64_t stream_stride = runs[next].to - runs[next - 1].to;
      const int64_t row_stride = runs[next].from - runs[next - 1].from;
      if (rows.rows == 1) {
        rows.stream_stride = stream_stride;
        rows.row_stride = row_stride;
      } else if (stream_stride != rows.stream_stride ||
                 row_stride != rows.row_stride) {
        break;
      }
      ++rows.rows;
    }
    use(first.from, rows);
    i = next;
  }
}

}  // namespace canzona

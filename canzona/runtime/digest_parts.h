// What digests of parameters and of states share; for their sources.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "canzona/base/index.h"
#include "canzona/runtime/logical_digest.h"
#include "canzona/runtime/rank.h"

namespace canzona {

// Memory of the engine, as this process can read it.
template <class Number>
std::vector<Number> downloaded(Rank& rank, const void* from, int64_t count) {
  std::vector<Number> values(index(count));
  rank.engine.download(reinterpret_cast<std::byte*>(values.data()),
                       static_cast<const std::byte*>(from),
                       count * static_cast<int64_t>(sizeof(Number)));
  return values;
}

// The tp shard of a tensor on this rank, all slices, as runs of the whole.
inline std::vector<ExtentCopy> shard_runs(const Rank& rank,
                                          const Tensor& tensor) {
  const int32_t tp = rank.plan.grid.tp_ranks();
  return logical_runs(tensor, tp, rank.place.t % tp);
}

// Values of a shard from its element `in_shard` on, as the whole tensor counts
// them.
template <class Number>
void add_of_shard(LogicalDigest& digest, uint64_t seed, const Rank& rank,
                  const Tensor& tensor, int64_t in_shard,
                  std::span<const Number> values) {
  for (const ExtentCopy& whole : shard_runs(rank, tensor)) {
    const ExtentCopy run = whole.from_within({in_shard, std::ssize(values)});
    if (run.count > 0)
      digest.add(seed, run.to,
                 values.subspan(index(run.from - in_shard), index(run.count)));
  }
}

}  // namespace canzona

// The rows of all slices of a shard, one after the other: as slice_rows() has
// them (mesh.h), without a division for each.
#pragma once

#include <cstdint>

namespace canzona::plan {

template <class Use>
void each_slice(int64_t rows, int32_t places, const Use& use) {
  const int64_t even = rows / places, left = rows % places;
  int64_t carried = 0;
  for (int32_t slice = 0; slice < places; ++slice) {
    carried += left;
    const bool has_more = carried >= places;
    if (has_more) carried -= places;
    use(slice, even + (has_more ? 1 : 0));
  }
}

}  // namespace canzona::plan

// Buckets of tensors that lie whole, though several ranks share their slices
// (plan/zero.h): what goes round is put together in a staging area.
//
//   StagedBucket staged(rank, rank.layout.gradients, bucket);
//   staged.pack(ops, staging, gradients, 4);
//
// Made from the plan alone. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/runtime/rank.h"

namespace canzona {

class StagedBucket {
 public:
  StagedBucket(const Rank& rank, const FlatLayout& layout, size_t bucket);

  // All pieces, or those that this rank keeps.
  void pack(const WireOps& ops, std::byte* staging, const std::byte* flat,
            int64_t element_bytes) const;
  void unpack(const WireOps& ops, std::byte* flat, const std::byte* staging,
              int64_t element_bytes) const;
  void pack_own(const WireOps& ops, std::byte* staging, const std::byte* flat,
                int64_t element_bytes) const;
  void unpack_own(const WireOps& ops, std::byte* flat, const std::byte* staging,
                  int64_t element_bytes) const;

 private:
  struct Pair {
    int64_t flat = 0;
    int64_t staging = 0;
    int64_t count = 0;
  };
  void add_own(const Pair& all, const Extent& own);

  std::vector<Pair> all_, own_;
};

}  // namespace canzona

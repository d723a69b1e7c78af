#include "canzona/runtime/zero/staged_bucket.h"

#include <algorithm>

#include "canzona/base/index.h"

namespace canzona {

StagedBucket::StagedBucket(const Rank& rank, const FlatLayout& layout,
                           size_t bucket) {
  const RankBucket& mine = layout.buckets[bucket];
  for (int32_t t : rank.plan.buckets[index(mine.bucket)].tensors) {
    if (rank.tensor(t).frozen) continue;  // nothing of it goes round
    for (const TensorPiece& piece : layout.pieces[index(t)]) {
      all_.push_back({layout.place_of(t, piece), piece.at, piece.count});
      add_own(all_.back(), mine.matrices.own);
      add_own(all_.back(), mine.elements.own);
    }
  }
}

void StagedBucket::add_own(const Pair& all, const Extent& own) {
  const int64_t first = std::max(all.staging, own.first);
  const int64_t end = std::min(all.staging + all.count, own.end());
  if (first < end)
    own_.push_back({all.flat + first - all.staging, first, end - first});
}

namespace {

template <class Pairs>
void copy_in(const WireOps& ops, const Pairs& pairs, std::byte* staging,
             const std::byte* flat, int64_t element_bytes) {
  for (const auto& p : pairs)
    ops.copy(staging + p.staging * element_bytes, flat + p.flat * element_bytes,
             p.count * element_bytes);
}

template <class Pairs>
void copy_out(const WireOps& ops, const Pairs& pairs, std::byte* flat,
              const std::byte* staging, int64_t element_bytes) {
  for (const auto& p : pairs)
    ops.copy(flat + p.flat * element_bytes, staging + p.staging * element_bytes,
             p.count * element_bytes);
}

}  // namespace

void StagedBucket::pack(const WireOps& ops, std::byte* staging,
                        const std::byte* flat, int64_t element_bytes) const {
  copy_in(ops, all_, staging, flat, element_bytes);
}

void StagedBucket::unpack(const WireOps& ops, std::byte* flat,
                          const std::byte* staging,
                          int64_t element_bytes) const {
  copy_out(ops, all_, flat, staging, element_bytes);
}

void StagedBucket::pack_own(const WireOps& ops, std::byte* staging,
                            const std::byte* flat,
                            int64_t element_bytes) const {
  copy_in(ops, own_, staging, flat, element_bytes);
}

void StagedBucket::unpack_own(const WireOps& ops, std::byte* flat,
                              const std::byte* staging,
                              int64_t element_bytes) const {
  copy_out(ops, own_, flat, staging, element_bytes);
}

}  // namespace canzona

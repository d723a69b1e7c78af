#include "canzona/plan/schedule/modules.h"

#include "canzona/base/error.h"
#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/bucket_collectives.h"
#include "canzona/plan/schedule/pools.h"
#include "canzona/plan/schedule/rank_group.h"

namespace canzona {
namespace {

void add_bucket_bytes(const PlanPart& part, const Bucket& bucket, int32_t rank,
                      PurposeBytes& out) {
  const Buffer& buffer = part.buffers[index(bucket.buffer)];
  BucketPieces pieces(part, bucket);
  for (const BucketCollectives& list :
       {gathers_of(part, rank), scatters_of(part, rank),
        sums_of(part, buffer, rank), publishes_of(part, buffer, rank)})
    for (const BucketCollective& c : list)
      of(out, c.purpose)
          .add(member_bytes(part, ranks_of(part, c, rank), rank, c.kind,
                            pieces.counts(c, rank)),
               element_bytes(part, c));
}

}  // namespace

std::vector<PurposeBytes> module_bytes(const PlanPart& part, int32_t rank) {
  std::vector<PurposeBytes> out(index(num_modules(part.model)));
  const Coordinates at = coordinates_of(part.mesh, rank);
  for (const Bucket& bucket : part.buckets)
    if (at.holds(part.buffers[index(bucket.buffer)]) && !bucket.tensors.empty())
      add_bucket_bytes(part, bucket, rank,
                       out[index(first_module(part, bucket))]);
  return out;
}

std::vector<PurposeBytes> module_bytes(const Plan& plan, int32_t rank) {
  std::vector<PurposeBytes> out(index(num_modules(plan.model)));
  for (const RankInPart& at : parts_of_rank(plan, rank)) {
    const std::vector<PurposeBytes> own =
        module_bytes(plan.parts[index(at.part)], at.rank);
    for (size_t m = 0; m < out.size(); ++m)
      for (size_t p = 0; p < out[m].size(); ++p) out[m][p] += own[m][p];
  }
  return out;
}

}  // namespace canzona

// The layout of buckets: tensors in order, and where each home's run begins.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

#include "canzona/plan/layout/problem.h"

namespace canzona::plan {

// The byte budget: how much of a bucket one home may keep.

// Returns the even share of a bucket ÷ (1 − alpha), in elements; infinite at
// alpha 1.
double share_limit(int64_t bucket_elements, int64_t num_homes, double alpha);

// Returns the most that one home may keep of a bucket with these tensor shards:
// the larger of the largest shard and share_limit.
int64_t bucket_cap(std::span<const int64_t> shards, int64_t num_homes,
                   double alpha);

// The same, but always reachable: if whole tensors may not fit it (nine equal
// ones on eight homes), at least what longest-first dealing needs.
int64_t reachable_bucket_cap(std::span<const int64_t> shards, int64_t num_homes,
                             double alpha);

// Buckets: lists of tensors that are reduced together. Tensors are taken in the
// order in which backward finishes them, i.e. reversed model order; a bucket is
// closed when its matrix-rule TP shards reach `bucket_elements`. AdamW tensors
// go into the bucket that is open at the time and never close one.

// Returns the buffers of a mesh; sets `buffer_of` to the buffer of each tensor.
std::vector<Buffer> make_buffers(const Mesh& mesh, const Model& model,
                                 std::vector<int32_t>& buffer_of);

std::vector<OpenBucket> make_buckets(const Model& model,
                                     const std::vector<Buffer>& buffers,
                                     const std::vector<int32_t>& buffer_of,
                                     const std::vector<int64_t>& shard_elements,
                                     int64_t bucket_elements,
                                     bool join_small_tail);

// Where a home's longest run in a bucket exceeds its even share by more than
// this factor, sums and new parameters of the bucket wait for that home. It
// happens if a bucket has few tensors for its homes.
inline constexpr double kUnevenBucket = 4;

// Returns the bucket_elements of a plan that leaves them to the planner: the
// usual number, or, if a home would keep more than twelve times its even share
// of some bucket, the first doubling of it with which none needs to keep more
// than twice, or as near to that as whole tensors allow. Larger buckets bound
// bytes more tightly and cost some balance, so that less is left as it is.
int64_t even_bucket_elements(const Plan& plan, bool join_small_tail);

// Makes one bucket per module, or per tensor: the unit of a message in
// hierarchical ZeRO.
std::vector<OpenBucket> make_module_buckets(
    const Model& model, const std::vector<int32_t>& buffer_of,
    const std::vector<int64_t>& shard_elements, MessageUnit unit);

// How a strategy lays its buckets out.
struct LayoutStyle {
  Traffic traffic;
  bool free_order;       // tensors may be re-ordered inside a bucket
  bool join_small_tail;  // a last bucket below half size joins its neighbour
  bool level_adamw;      // AdamW cuts level memory; otherwise even shares
  bool widens_buckets = false;  // uneven buckets become larger ones
};

// Returns the buckets of a finished assignment. If the order is free, tensors
// of one home lie side by side. AdamW tensors come last and are cut evenly, or
// so that state bytes are level over homes.
std::vector<Bucket> lay_out(const Problem& p, const LayoutStyle& style,
                            const Assignment& a);

// Cuts AdamW tensors. They have no owner and may be cut anywhere, so their cuts
// are used to level memory.

// Gives every home an equal share of each bucket's AdamW elements.
void cut_adamw_evenly(const Problem& p, std::vector<Bucket>& buckets);

// Cuts so that master weights and states take the same bytes on every home, as
// far as the AdamW elements of a buffer suffice. Every bucket is cut in the
// same proportions.
void cut_adamw_level(const Problem& p, const Assignment& a,
                     std::vector<Bucket>& buckets);

}  // namespace canzona::plan

// Buckets: runs of tensors reduced together. Tensors are taken in the order in
// which backward finishes them, which is model order reversed; a bucket closes
// when its matrix-rule TP shards reach `bucket_elements`. AdamW tensors lie in
// the bucket that is open at their place and never close one.
#pragma once

#include "canzona/plan/problem.h"

namespace canzona {

// The buffers of a mesh, and for each tensor the buffer it lies in.
std::vector<Buffer> make_buffers(const Mesh& mesh, const Model& model,
                                 std::vector<int32_t>& buffer_of);

std::vector<OpenBucket> make_buckets(const Model& model,
                                     const std::vector<Buffer>& buffers,
                                     const std::vector<int32_t>& buffer_of,
                                     const std::vector<int64_t>& shard_elements,
                                     int64_t bucket_elements,
                                     bool join_small_tail);

// Buckets that are modules, or single tensors: what travels in one message of
// hierarchical ZeRO.
std::vector<OpenBucket> make_module_buckets(
    const Model& model, const std::vector<int32_t>& buffer_of,
    const std::vector<int64_t>& shard_elements, MessageUnit unit);

}  // namespace canzona

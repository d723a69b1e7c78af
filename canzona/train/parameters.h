// The initial parameters of a run. They depend only on the seed, the tensor's
// name and the logical position, so every mesh begins with the same model.
//
//   make_initial(model, tensor, seed, mesh.tp, place.t, shard);
//
// Norms are ones. Everything else is normally distributed: embedding and head
// with deviation 0.02, a matrix with 1/√columns, and matrices that write to the
// residual stream (o and down) with 1/√(2·layers) of that, so that depth does
// not blow it up.
//
// make_initial() is pure. Whole tensors, at the end of a run, are assembled by
// all ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "canzona/runtime/runtime.h"
#include "canzona/shapes/tensor.h"

namespace canzona {

double initial_deviation(const Model& model, const Tensor& tensor);

// `shard` is that of tp rank `t`.
void make_initial(const Model& model, const Tensor& tensor, uint64_t seed,
                  int32_t tp, int32_t t, std::span<float> shard);

// Assembles tensors on rank 0 from the shards of all ranks.
//
//   gather_whole(world, runtime, tensor,
//                [&](std::span<const float> whole) { … });
//
// All ranks must call it for the same tensor; `use` is called on rank 0 only.
void gather_whole(Communicator& world, Runtime& runtime, int32_t tensor,
                  const std::function<void(std::span<const float>)>& use);

}  // namespace canzona

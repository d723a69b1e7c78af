// The parameters a run begins with. They depend on the seed, the tensor's name
// and the logical position alone: every mesh begins with the same model.
//
//   make_initial(model, tensor, seed, mesh.tp, place.t, shard);
//
// Norms are ones. Everything else is normal: embedding and head with deviation
// 0.02, a matrix with 1/√columns, and what is added to the residual stream (o
// and down) with 1/√(2·layers) of that, so that depth does not blow it up.
//
// Pure; any thread may call.
#pragma once

#include <cstdint>
#include <span>

#include "canzona/shapes/tensor.h"

namespace canzona {

double initial_deviation(const Model& model, const Tensor& tensor);

// `shard` is the one of tp rank `t`.
void make_initial(const Model& model, const Tensor& tensor, uint64_t seed,
                  int32_t tp, int32_t t, std::span<float> shard);

}  // namespace canzona

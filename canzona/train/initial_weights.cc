#include "canzona/train/initial_weights.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/random.h"
#include "canzona/runtime/digest/logical_digest.h"
#include "canzona/runtime/fill_shard.h"

namespace canzona {
namespace {

constexpr double kOutsideLayers = 0.02;

// tp cuts what is added to the residual stream by columns, and nothing else.
bool ends_a_block(const Tensor& tensor) { return tensor.cut == Cut::kColumns; }

}  // namespace

double initial_deviation(const Model& model, const Tensor& tensor) {
  if (tensor.role == Role::kEmbedding || tensor.role == Role::kHead)
    return kOutsideLayers;
  const double usual = 1 / std::sqrt(static_cast<double>(tensor.cols()));
  if (!ends_a_block(tensor)) return usual;
  return usual / std::sqrt(2.0 * model.num_layers);
}

void make_initial(const Model& model, const Tensor& tensor, uint64_t seed,
                  int32_t tp, int32_t t, std::span<float> shard) {
  if (tensor.role == Role::kNorm) {
    std::ranges::fill(shard, 1.0F);
    return;
  }
  const uint64_t stream = bits_at(name_seed(tensor.name), seed);
  const double deviation = initial_deviation(model, tensor);
  fill_shard(tensor, tp, t, shard, [&](uint64_t i) {
    return static_cast<float>(deviation * normal_at(stream, i));
  });
}

}  // namespace canzona

#include "canzona/train/parameters.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "canzona/base/index.h"
#include "canzona/base/random.h"
#include "canzona/comm/from_all.h"
#include "canzona/plan/schedule/kept.h"
#include "canzona/runtime/digest/logical_digest.h"
#include "canzona/runtime/fill_shard.h"

namespace canzona {
namespace {

constexpr double kOutsideLayers = 0.02;

// True for matrices that write to the residual stream, which are exactly those
// that tp cuts by columns.
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

namespace {

// A rank sends its runs of the tp shard, as extents and values.
struct Sent {
  std::vector<int64_t> runs;  // first and count of each
  std::vector<float> values;
};

Sent sent_by(Runtime& runtime, int32_t tensor) {
  Sent sent;
  if (!runtime.keeps_first(tensor)) return sent;
  int64_t kept = 0;
  for (const Extent& run : runtime.kept_runs(tensor)) {
    sent.runs.insert(sent.runs.end(), {run.first, run.count});
    kept += run.count;
  }
  sent.values.resize(index(kept));
  runtime.get_kept(tensor, sent.values);
  return sent;
}

// Copies a run of a shard to its place in the whole tensor.
void put(const std::vector<ExtentCopy>& shard, const Extent& kept,
         const float* values, std::vector<float>& whole) {
  for (const ExtentCopy& all : shard) {
    const ExtentCopy run = all.from_within(kept);
    std::copy_n(values + run.from - kept.first, run.count,
                whole.data() + run.to);
  }
}

}  // namespace

void gather_whole(Communicator& world, Runtime& runtime, int32_t tensor,
                  const std::function<void(std::span<const float>)>& use) {
  const Plan& plan = runtime.plan();
  const Tensor& what = plan.model.tensors[index(tensor)];
  const Sent own = sent_by(runtime, tensor);
  const auto runs = to_first<int64_t>(world, own.runs);
  const auto values = to_first<float>(world, own.values);
  if (world.rank() != 0) return;
  std::vector<float> whole(index(what.elements()));
  for (int32_t r = 0; r < world.size(); ++r) {
    const auto shard =
        logical_runs(what, plan.mesh.tp, coordinates_of(plan.mesh, r).t);
    const float* next = values[index(r)].data();
    for (size_t i = 0; i < runs[index(r)].size(); i += 2) {
      const Extent kept{runs[index(r)][i], runs[index(r)][i + 1]};
      put(shard, kept, next, whole);
      next += kept.count;
    }
  }
  use(whole);
}

}  // namespace canzona

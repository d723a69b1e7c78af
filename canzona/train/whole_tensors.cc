#include "canzona/train/whole_tensors.h"

#include <algorithm>
#include <vector>

#include "canzona/runtime/index.h"
#include "canzona/runtime/kept.h"

namespace canzona {
namespace {

// Of the homes that hold a tensor the first one sends it.
bool sends(const Plan& plan, const RankPlace& place, int32_t tensor) {
  const Buffer& buffer = plan.buffer_of(tensor);
  const Tensor& what = plan.model.tensors[index(tensor)];
  if (!place.holds(buffer) || place.home_in(buffer) != 0) return false;
  return what.cut != Cut::kNone || place.t == 0;
}

}  // namespace

void gather_whole(Communicator& world, Runtime& runtime, int32_t tensor,
                  const std::function<void(std::span<const float>)>& use) {
  const Plan& plan = runtime.plan();
  const Tensor& what = plan.model.tensors[index(tensor)];
  const int64_t count = shard_elements(plan.mesh, what);
  std::vector<float> own;
  if (sends(plan, runtime.place(), tensor)) {
    own.resize(index(count));
    runtime.get_parameter(tensor, own);
  }

  const size_t ranks = index(world.size());
  std::vector<int64_t> sent(ranks, 0), received(ranks, 0), zeros(ranks, 0);
  std::vector<int64_t> offsets(ranks, 0);
  sent[0] = std::ssize(own) * kBytesPerFp32;
  std::vector<float> arrived;
  if (world.rank() == 0) {
    int64_t end = 0;
    for (int32_t r = 0; r < world.size(); ++r) {
      offsets[index(r)] = end;
      if (!sends(plan, place_of(plan.mesh, r), tensor)) continue;
      received[index(r)] = count * kBytesPerFp32;
      end += received[index(r)];
    }
    arrived.resize(index(end / kBytesPerFp32));
  }
  world.all_to_all_v(
      {std::as_bytes(std::span(own)), sent, zeros},
      {std::as_writable_bytes(std::span(arrived)), received, offsets},
      {.label = "whole tensors"});
  if (world.rank() != 0) return;

  std::vector<float> whole(index(what.elements()));
  for (int32_t r = 0; r < world.size(); ++r) {
    if (received[index(r)] == 0) continue;
    const float* shard = arrived.data() + offsets[index(r)] / kBytesPerFp32;
    for (const LogicalRun& run :
         logical_runs(what, plan.mesh.tp, place_of(plan.mesh, r).t))
      std::copy_n(shard + run.in_shard, run.count,
                  whole.data() + run.in_tensor);
  }
  use(whole);
}

}  // namespace canzona

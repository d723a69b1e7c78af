#include "canzona/sim/memory_floor.h"

#include <vector>

namespace canzona {
namespace {

// Elements of a rank of one stage, if every tensor were kept whole.
struct StageElements {
  int64_t all = 0;
  int64_t trained = 0;  // without frozen tensors
};

// Returns those of dense tensors, or those of experts, per stage; of experts,
// the mean over ep coordinates.
std::vector<StageElements> elements_of(const PlanRequest& request,
                                       bool experts) {
  std::vector<StageElements> stages(static_cast<size_t>(request.mesh.pp));
  for (const Tensor& tensor : request.model.tensors) {
    if ((tensor.expert >= 0) != experts) continue;
    const int32_t stage = stage_of(request.mesh, request.model, tensor);
    StageElements& own = stages[static_cast<size_t>(stage)];
    const int64_t elements = shard_elements(request.mesh, tensor);
    own.all += elements;
    if (!tensor.frozen) own.trained += elements;
  }
  for (StageElements& own : stages)
    if (experts)
      own = {own.all / request.mesh.ep, own.trained / request.mesh.ep};
  return stages;
}

// Whatever is cut, some rank keeps at least the mean.
RankMemory means_of(const StageElements& elements, const ZeroSizes& sizes,
                    DType parameters, DType gradients) {
  RankMemory memory;
  memory.parameters = Bytes(elements.all * size_of(parameters) / sizes.z3);
  memory.gradients = Bytes(elements.trained * size_of(gradients) / sizes.z2);
  memory.master =
      Bytes(elements.trained * master_bytes_per_element(parameters) / sizes.z1);
  return memory;
}

// Experts that are not planned apart have the sizes of dense tensors, or plain
// ZeRO-1 over their own ranks.
ZeroSizes sizes_of_experts(const ZeroOptions& zero, const Mesh& mesh) {
  if (zero.experts.z1 > 0) return zero.experts;
  return mesh.ep == 1 ? zero.sizes : ZeroSizes{mesh.expert_homes(), 1, 1};
}

}  // namespace

RankMemory least_memory(const PlanRequest& request, const MemoryTerms& terms) {
  const PlanOptions& options = request.options;
  const ZeroOptions zero =
      resolve_zero(options.zero, request.mesh, request.model);
  const auto dense = elements_of(request, false);
  const auto experts = elements_of(request, true);
  RankMemory most;
  for (size_t stage = 0; stage < dense.size(); ++stage) {
    RankMemory own =
        means_of(dense[stage], zero.sizes, options.parameters, terms.gradients);
    own += means_of(experts[stage], sizes_of_experts(zero, request.mesh),
                    options.parameters, terms.gradients);
    if (own.total() > most.total()) most = own;
  }
  return most;
}

}  // namespace canzona

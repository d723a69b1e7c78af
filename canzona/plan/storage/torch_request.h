// The request that python/canzona makes of a model under one of PyTorch's
// layouts, made from shapes alone.
//
//   TorchLayout layout = parse_torch_layout("hsdp:8");
//   StorageRequest request = torch_request(
//       model, {.layout = layout, .mesh = parse_mesh("dp=64,tp=8")});
//   StoragePlan plan = make_storage_plan(std::move(request));
//
// DDP stores a tensor whole on every data-parallel rank. FSDP2 cuts dimension 0
// over all of them as torch.chunk does: chunks of equal size, rounded up, so
// that the last ranks may have less or nothing. HSDP does the same over groups
// of consecutive data-parallel ranks, which are replicas of each other.
//
// Before that, tensor parallelism cuts what the model's family cuts: rows are
// Shard(0), columns Shard(1), everything else is Replicate. FSDP2 then cuts
// each tensor-parallel shard (DTensor's _StridedShard). Ranks count tp fastest,
// as in init_device_mesh((dp, tp)).
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/base/dtype.h"
#include "canzona/plan/mesh.h"
#include "canzona/plan/storage/storage_plan.h"
#include "canzona/shapes/tensor.h"

namespace canzona::plan {

struct TorchLayout {
  enum class Kind { kDdp, kFsdp2, kHsdp };
  Kind kind = Kind::kDdp;
  int32_t shards = 0;  // kHsdp only: ranks of a group that shards

  // Returns the number of data-parallel ranks that share a copy.
  int32_t shards_of(int32_t dp) const;
  friend bool operator==(const TorchLayout&, const TorchLayout&) = default;
};

// Parses "ddp", "fsdp2" or "hsdp:8". The UsageError names the word and the
// nearest one.
TorchLayout parse_torch_layout(std::string_view text);
std::string to_string(const TorchLayout& layout);

struct TorchPlacement {
  TorchLayout layout = {};
  Mesh mesh = {};                           // dp and tp; other axes must be 1
  RuleGroup matrices = {};                  // group of matrix-rule tensors
  RuleGroup elements = {kElementRule, {}};  // group of all others
  DType dtype = DType::kFp32;
  Splits splits = {};
  StorageOptions options = {};
};

// Returns what every rank stores of a tensor. `tp_dim` is the dimension that
// tensor parallelism cuts, which it divides, or -1.
std::vector<std::vector<Box>> torch_boxes(const std::vector<int64_t>& shape,
                                          int32_t tp_dim,
                                          const TorchLayout& layout,
                                          const Mesh& mesh);

// Returns the request for a routed model. Tensors of matrix rules come first,
// as in an optimizer's groups; frozen ones are left out. Experts that are
// parameters of one module (experts.gate_up_proj, not experts.0.up.weight) are
// one tensor with a leading dimension. The UsageError names the axis, the
// layout or the tensor that cannot be placed.
StorageRequest torch_request(const Model& model,
                             const TorchPlacement& placement);

}  // namespace canzona::plan

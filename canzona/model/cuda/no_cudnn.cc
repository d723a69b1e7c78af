// Replaces cudnn_attention.cc in a build without cuDNN's headers.
#include "canzona/base/error.h"
#include "canzona/model/cuda/attention.h"

namespace canzona::model::gpu {

std::unique_ptr<DeviceAttention<uint16_t>> make_cudnn_attention(
    CudaEngine& /*engine*/, const AttentionShape& /*shape*/,
    std::byte* /*workspace*/, int64_t /*workspace_bytes*/) {
  throw UsageError(
      "this build has no cuDNN; build with `make cuda CUDNN=1`, which fetches "
      "its headers, or use --attention plain");
}

}  // namespace canzona::model::gpu

#include <cuda_runtime.h>

#include "canzona/linalg/cuda/check.h"
#include "canzona/linalg/cuda/graph/condition.h"

namespace canzona {
namespace {

__global__ void set_if_zero(cudaGraphConditionalHandle handle,
                            const int32_t* flag) {
  cudaGraphSetConditional(handle, *flag == 0 ? 1 : 0);
}

// What the stream captures into, and what its next node comes after.
struct Capture {
  explicit Capture(cudaStream_t stream) {
    check_cuda(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph,
                                        &before, &edges, &num_before),
               "cudaStreamGetCaptureInfo");
  }
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  const cudaGraphNode_t* before = nullptr;
  const cudaGraphEdgeData* edges = nullptr;
  size_t num_before = 0;
};

}  // namespace

cudaGraph_t add_condition(cudaStream_t stream, const int32_t* flag) {
  cudaGraphNodeParams params = {};
  params.type = cudaGraphNodeTypeConditional;
  params.conditional.type = cudaGraphCondTypeIf;
  params.conditional.size = 1;
  check_cuda(cudaGraphConditionalHandleCreate(&params.conditional.handle,
                                              Capture(stream).graph, 0,
                                              cudaGraphCondAssignDefault),
             "cudaGraphConditionalHandleCreate");
  set_if_zero<<<1, 1, 0, stream>>>(params.conditional.handle, flag);
  check_cuda(cudaGetLastError(), "launch of set_if_zero");
  const Capture capture(stream);
  cudaGraphNode_t node = nullptr;
  check_cuda(cudaGraphAddNode(&node, capture.graph, capture.before,
                              capture.edges, capture.num_before, &params),
             "cudaGraphAddNode of a condition");
  check_cuda(cudaStreamUpdateCaptureDependencies(
                 stream, &node, nullptr, 1, cudaStreamSetCaptureDependencies),
             "cudaStreamUpdateCaptureDependencies");
  return params.conditional.phGraph_out[0];
}

}  // namespace canzona

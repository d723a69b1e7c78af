#include "canzona/linalg/cuda/graph/notice.h"

#include <cuda_runtime.h>

#include <atomic>
#include <thread>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/cuda/launch.cuh"

namespace canzona::linalg {
namespace {

__global__ void set_if_zero(cudaGraphConditionalHandle handle,
                            const int32_t* flag) {
  cudaGraphSetConditional(handle, *flag == 0 ? 1 : 0);
}

// The graph that the stream captures into, and the nodes on which its next node
// depends.
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

namespace {

// Host memory that the GPU can write.
struct Board {
  int64_t posts;
  int32_t number;
};

// The count is written last: a reader that sees it also sees the number.
__global__ void post_kernel(volatile Board* board, const int32_t* number) {
  board->number = *number;
  __threadfence_system();
  board->posts = board->posts + 1;
  __threadfence_system();
}

class CudaNotice final : public Notice {
 public:
  CudaNotice() {
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, sizeof(Board), cudaHostAllocMapped),
               "memory for a notice");
    board_ = new (memory) Board{};
  }
  ~CudaNotice() override { cudaFreeHost(board_); }

  void post(Engine& engine, const int32_t* number) override {
    CANZONA_CHECK(engine.kind() == "cuda", "a GPU's notice on ", engine.kind());
    auto& gpu = static_cast<CudaEngine&>(engine);
    last_ = &gpu;
    if (gpu.dry("post", board_, number)) return;
    post_kernel<<<1, 1, 0, gpu.stream()>>>(board_, number);
    check_launch("a notice");
  }

  // Checks for errors, because otherwise a fault on the GPU would be awaited
  // forever.
  int32_t wait() override {
    ++waited_for_;
    for (int64_t looks = 0; !posted(); ++looks) {
      if (looks % kLooksBetweenChecks != kLooksBetweenChecks - 1) continue;
      check_cuda(cudaPeekAtLastError(), "waiting for a notice");
      if (last_ != nullptr && idle() && !posted())
        throw InternalError("waiting for a notice that was never posted");
      std::this_thread::yield();
    }
    return const_cast<volatile Board*>(board_)->number;
  }

 private:
  static constexpr int64_t kLooksBetweenChecks = 4096;

  bool posted() const {
    const bool there =
        const_cast<volatile Board*>(board_)->posts >= waited_for_;
    std::atomic_thread_fence(std::memory_order_acquire);
    return there;
  }
  bool idle() const {
    const cudaError_t status = cudaStreamQuery(last_->stream());
    if (status == cudaErrorNotReady) return false;
    check_cuda(status, "waiting for a notice");
    return true;
  }

  Board* board_ = nullptr;
  CudaEngine* last_ = nullptr;
  int64_t waited_for_ = 0;
};

}  // namespace

std::unique_ptr<Notice> make_cuda_notice() {
  return std::make_unique<CudaNotice>();
}

}  // namespace canzona::linalg

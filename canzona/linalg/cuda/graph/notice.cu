#include <atomic>
#include <thread>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/graph/notice.h"
#include "canzona/linalg/cuda/launch.cuh"

namespace canzona {
namespace {

// In memory of this process that the GPU can write.
struct Board {
  int64_t posts;
  int32_t number;
};

// The count comes last: who sees it sees the number, too.
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

  // A fault on the GPU would otherwise be waited for in vain.
  int32_t wait() override {
    ++waited_for_;
    for (int64_t looks = 0; !posted(); ++looks) {
      if (looks % kLooksBetweenChecks != kLooksBetweenChecks - 1) continue;
      check_cuda(cudaPeekAtLastError(), "waiting for a notice");
      if (last_ != nullptr && idle() && !posted())
        throw InternalError("a notice that was never posted is waited for");
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

}  // namespace canzona

// Copies and order of work on a GPU.
#include <algorithm>
#include <cstring>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/check.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/graph/notice.h"

namespace canzona {
namespace {

class StreamEvent final : public Event {
 public:
  explicit StreamEvent(cudaStream_t stream) {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status == cudaSuccess) return;
    cudaEventDestroy(event_);
    throw_cuda_error(status, "cudaEventRecord");
  }
  ~StreamEvent() override { cudaEventDestroy(event_); }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  bool reached() override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check_cuda(status, "cudaEventQuery");
    return true;
  }
  void wait() override {
    check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

void CudaEngine::upload(std::byte* to, const std::byte* from, int64_t bytes) {
  needs_results();
  if (bytes <= 0) return;
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes),
                             cudaMemcpyHostToDevice, own_stream_),
             "upload");
  synchronize();
}

void CudaEngine::download(std::byte* to, const std::byte* from, int64_t bytes) {
  needs_results();
  if (bytes <= 0) return;
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes),
                             cudaMemcpyDeviceToHost, own_stream_),
             "download");
  synchronize();
}

// Small results pass through memory that a copy reaches without a detour.
const std::byte* CudaEngine::fetch(const std::byte* device, int64_t bytes) {
  if (bytes > results_size_) {
    cudaFreeHost(results_);
    results_ = nullptr;
    results_size_ = 0;
    void* memory = nullptr;
    const int64_t size = std::max<int64_t>(bytes, int64_t{64} << 10);
    check_cuda(cudaMallocHost(&memory, static_cast<size_t>(size)),
               "cudaMallocHost");
    results_ = static_cast<std::byte*>(memory);
    results_size_ = size;
  }
  download(results_, device, bytes);
  return results_;
}

void CudaEngine::set_zero(std::byte* to, int64_t bytes) {
  if (bytes <= 0 || dry("set_zero", to, bytes)) return;
  check_cuda(cudaMemsetAsync(to, 0, static_cast<size_t>(bytes), stream()),
             "cudaMemsetAsync");
}

void CudaEngine::wait_for(Engine& other) {
  if (&other == this) return;
  auto* gpu = dynamic_cast<CudaEngine*>(&other);
  if (gpu == nullptr) {
    other.synchronize();
    return;
  }
  if (Recording* both = recording_ != nullptr ? recording_ : gpu->recording_) {
    both->order(*gpu, *this);
    return;
  }
  check_cuda(cudaEventRecord(gpu->edge_, gpu->own_stream_), "cudaEventRecord");
  check_cuda(cudaStreamWaitEvent(own_stream_, gpu->edge_, 0),
             "cudaStreamWaitEvent");
}

std::unique_ptr<Event> CudaEngine::record() {
  needs_results();
  return std::make_unique<StreamEvent>(own_stream_);
}

std::unique_ptr<Notice> CudaEngine::make_notice() { return make_cuda_notice(); }

void CudaEngine::synchronize() {
  needs_results();
  check_cuda(cudaStreamSynchronize(own_stream_), "cudaStreamSynchronize");
}

}  // namespace canzona

#include "canzona/linalg/cuda/cuda_engine.h"

#include <algorithm>
#include <atomic>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/cuda/algebra/algebra.h"
#include "canzona/linalg/cuda/cuda_words.h"
#include "canzona/linalg/cuda/graph/notice.h"
#include "canzona/linalg/cuda/libraries.h"
#include "canzona/linalg/cuda/tiles/kernel_choice.h"

namespace canzona::linalg {
namespace {

uint64_t next_id() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

// Setting the device that is current already would end a thread's share of it.
void make_current(int device) {
  int current = -1;
  check_cuda(cudaGetDevice(&current), "cudaGetDevice");
  if (current != device) check_cuda(cudaSetDevice(device), "cudaSetDevice");
}

// Without a driver this is the first call that fails.
void require_gpu(int device) {
  int count = 0;
  check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  if (count == 0) throw_cuda_error(cudaErrorNoDevice, "cudaGetDeviceCount");
  if (device < 0 || device >= count)
    throw UsageError(cat("there is no GPU ", device, ": this machine has ",
                         count, ", numbered from 0"));
  int major = 0;
  check_cuda(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
      "cudaDeviceGetAttribute");
  if (major < 8)
    throw UsageError(cat("GPU ", device, " has compute capability ", major,
                         ".x; 8.0 or newer is needed (Ampere)"));
}

}  // namespace

void CudaScratch::release(std::byte* memory) {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  cuda_memory().release(memory);
}

CudaEngine::CudaEngine(int device, cudaStream_t stream, Memory* memory)
    : Engine(memory != nullptr ? *memory : scratch),
      id_(next_id()),
      device_(device),
      owns_stream_(stream == nullptr),
      own_stream_(stream),
      libraries_(std::make_unique<Libraries>()),
      graphs_(std::make_unique<Graphs>()) {
  require_gpu(device);
  make_current(device);
  connect_peers(device);
  num_multiprocessors_ = usable_multiprocessors(device);
  if (owns_stream_)
    check_cuda(cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking),
               "cudaStreamCreateWithFlags");
  scratch.set_stream(own_stream_);
  check_cuda(cudaEventCreateWithFlags(&edge_, cudaEventDisableTiming),
             "cudaEventCreateWithFlags");
}

CudaEngine::~CudaEngine() {
  cudaStreamSynchronize(own_stream_);
  scratch.set_stream(nullptr);
  for (auto& algebra : algebras_) algebra.reset();
  graphs_.reset();
  libraries_.reset();
  if (workspace_ != nullptr) memory().release(workspace_);
  cudaFreeHost(results_);
  cudaEventDestroy(edge_);
  if (owns_stream_) cudaStreamDestroy(own_stream_);
}

std::string CudaEngine::describe() const {
  cudaDeviceProp gpu{};
  check_cuda(cudaGetDeviceProperties(&gpu, device_), "cudaGetDeviceProperties");
  const CurrentCudaDevice at(device_);
  return cat(static_cast<const char*>(gpu.name), ", compute ", gpu.major, ".",
             gpu.minor, ", ", kernel_name(), ", ", cublas_version());
}

Algebra& CudaEngine::algebra(DType dtype) {
  auto& algebra = algebras_[static_cast<size_t>(dtype)];
  if (algebra == nullptr) algebra = make_cuda_algebra(*this, dtype);
  return *algebra;
}

cudaStream_t CudaEngine::stream() {
  if (recording_ == nullptr) return own_stream_;
  CANZONA_CHECK(!recording_->is_dry(), "a launch in a dry run");
  return recording_->stream_of(*this);
}

std::byte* CudaEngine::workspace() {
  if (workspace_ == nullptr) workspace_ = memory().allocate(kWorkspaceBytes);
  return workspace_;
}

// A library forgets its workspace when its stream is set.
cublasHandle_t CudaEngine::cublas() {
  const cublasHandle_t handle = libraries_->cublas();
  std::byte* given = workspace();
  if (is_dry()) return handle;
  check_cublas(cublasSetStream(handle, stream()), "cublasSetStream");
  check_cublas(cublasSetWorkspace(handle, given, kWorkspaceBytes),
               "cublasSetWorkspace");
  return handle;
}

cublasLtHandle_t CudaEngine::cublas_lt() { return libraries_->cublas_lt(); }

cusolverDnHandle_t CudaEngine::cusolver() {
  const cusolverDnHandle_t handle = libraries_->cusolver();
  check_cusolver(cusolverDnSetStream(handle, own_stream_),
                 "cusolverDnSetStream");
  return handle;
}

cusolverDnParams_t CudaEngine::cusolver_params() {
  return libraries_->cusolver_params();
}

const std::byte* CudaEngine::push_bytes(std::span<const std::byte> bytes) {
  return recording_ != nullptr ? recording_->push_scalars(bytes)
                               : ring_.put(bytes, own_stream_);
}

const std::byte* CudaEngine::table_bytes(std::span<const std::byte> bytes) {
  return recording_ != nullptr ? recording_->push_table(bytes)
                               : ring_.put_on_device(bytes, own_stream_);
}

const std::byte* CudaEngine::moving_bytes(std::span<const std::byte> bytes) {
  return recording_ != nullptr ? recording_->push_scalars(bytes)
                               : ring_.put_on_device(bytes, own_stream_);
}

template <>
const double* CudaEngine::push(std::span<const double> values) {
  return reinterpret_cast<const double*>(push_bytes(std::as_bytes(values)));
}

template <>
const float* CudaEngine::push(std::span<const double> values) {
  rounded_.assign(values.begin(), values.end());
  return reinterpret_cast<const float*>(
      push_bytes(std::as_bytes(std::span<const float>(rounded_))));
}

}  // namespace canzona::linalg

namespace canzona {
using namespace linalg;

std::unique_ptr<Engine> make_cuda_engine() {
  return std::make_unique<CudaEngine>();
}
std::unique_ptr<Engine> make_cuda_engine(int device, void* stream,
                                         Memory* scratch) {
  return std::make_unique<CudaEngine>(device, static_cast<cudaStream_t>(stream),
                                      scratch);
}

namespace {

// Copies and order of work on a GPU.
class StreamEvent final : public Event {
 public:
  explicit StreamEvent(bool timed) {
    check_cuda(cudaEventCreateWithFlags(
                   &event_, timed ? cudaEventDefault : cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  }
  ~StreamEvent() override { cudaEventDestroy(event_); }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;

  void record(cudaStream_t stream) {
    check_cuda(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  void hold_back(cudaStream_t stream) const {
    check_cuda(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
  }

  bool reached() override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check_cuda(status, "cudaEventQuery");
    return true;
  }
  void wait() override {
    check_cuda(cudaEventSynchronize(event_), "cudaEventSynchronize");
  }
  double seconds_after(const Event& earlier) const override {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(
                   &milliseconds,
                   static_cast<const StreamEvent&>(earlier).event_, event_),
               "cudaEventElapsedTime");
    return 1e-3 * milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

}  // namespace canzona

namespace canzona::linalg {

std::unique_ptr<Event> make_cuda_event() {
  return std::make_unique<StreamEvent>(false);
}
std::unique_ptr<Event> make_timed_cuda_event() {
  return std::make_unique<StreamEvent>(true);
}
void record_cuda_event(Event& event, cudaStream_t stream) {
  static_cast<StreamEvent&>(event).record(stream);
}
void wait_for_cuda_event(const Event& event, cudaStream_t stream) {
  static_cast<const StreamEvent&>(event).hold_back(stream);
}

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

// Small results pass through pinned memory, which a copy reaches directly.
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
  auto event = make_cuda_event();
  record_cuda_event(*event, own_stream_);
  return event;
}

std::unique_ptr<Event> CudaEngine::make_event() { return make_cuda_event(); }
std::unique_ptr<Event> CudaEngine::make_timed_event() {
  return make_timed_cuda_event();
}

void CudaEngine::record_in(Event& event) {
  needs_results();
  record_cuda_event(event, own_stream_);
}

void CudaEngine::wait_until(const Event& event) {
  needs_results();
  wait_for_cuda_event(event, own_stream_);
}

std::unique_ptr<MemoryLane> CudaEngine::make_lane() { return make_cuda_lane(); }

std::unique_ptr<Notice> CudaEngine::make_notice() { return make_cuda_notice(); }

void CudaEngine::idle(double seconds) {
  if (!dry("idle", seconds)) launch_idle(stream(), seconds);
}

void CudaEngine::synchronize() {
  needs_results();
  check_cuda(cudaStreamSynchronize(own_stream_), "cudaStreamSynchronize");
}

}  // namespace canzona::linalg

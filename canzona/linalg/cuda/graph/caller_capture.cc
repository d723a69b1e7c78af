#include "canzona/linalg/cuda/graph/caller_capture.h"

#include <cstring>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/linalg/cuda/cuda_engine.h"
#include "canzona/linalg/cuda/device.h"
#include "canzona/linalg/gradient_numbers.h"

namespace canzona::linalg {
namespace {

// Lets this thread allocate memory while a stream is captured, whatever mode
// the caller has chosen: nothing here becomes part of the graph by accident.
class MayAllocate {
 public:
  MayAllocate() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~MayAllocate() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  MayAllocate(const MayAllocate&) = delete;
  MayAllocate& operator=(const MayAllocate&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

std::byte* host_memory_of(int64_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory, static_cast<size_t>(bytes)),
             "cudaMallocHost");
  std::memset(memory, 0, static_cast<size_t>(bytes));
  return static_cast<std::byte*>(memory);
}

constexpr int64_t kReadBytes = 8;

void read_back(std::byte* to, const std::byte* from, int64_t bytes,
               cudaStream_t stream) {
  CANZONA_CHECK(bytes <= kReadBytes, "a number of ", bytes, " bytes");
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes),
                             cudaMemcpyDeviceToHost, stream),
             "copy of a replay's numbers");
}

bool is_being_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check_cuda(cudaStreamIsCapturing(stream, &status), "cudaStreamIsCapturing");
  return status == cudaStreamCaptureStatusActive;
}

}  // namespace

ReplayedMemory::ReplayedMemory(const PushedBytes& scalars,
                               const PushedBytes& tables)
    : num_scalars_(std::ssize(scalars.bytes())),
      size_(kHead + num_scalars_ + std::ssize(tables.bytes())),
      host_(host_memory_of(size_)) {
  void* memory = nullptr;
  const cudaError_t status = cudaMalloc(&memory, static_cast<size_t>(size_));
  if (status != cudaSuccess) cudaFreeHost(host_);
  check_cuda(status, "cudaMalloc");
  device_ = static_cast<std::byte*>(memory);
  write(scalars.bytes());
  if (!tables.bytes().empty())
    std::memcpy(host_ + kHead + num_scalars_, tables.bytes().data(),
                tables.bytes().size());
}

ReplayedMemory::~ReplayedMemory() {
  cudaFree(device_);
  cudaFreeHost(host_);
}

bool ReplayedMemory::write(std::span<const std::byte> scalars) {
  if (std::ssize(scalars) != num_scalars_) return false;
  if (!scalars.empty())
    std::memcpy(host_ + kHead, scalars.data(), scalars.size());
  return true;
}

void ReplayedMemory::refuse(bool refused) {
  const int64_t code = refused ? kUnlikeCode : 0;
  std::memcpy(host_, &code, sizeof(code));
}

void ReplayedMemory::copy(cudaStream_t stream) const {
  check_cuda(cudaMemcpyAsync(device_, host_, static_cast<size_t>(size_),
                             cudaMemcpyHostToDevice, stream),
             "copy of a replay's scalars");
}

// A graph may be replayed at any time, so what it calls is never freed.
CallerCapture::CallerCapture(CudaEngine& engine, CapturedWork work)
    : engine_(engine), work_(std::move(work)), address_(new Address) {
  address_->capture = this;
}

CallerCapture::~CallerCapture() {
  {
    const std::lock_guard lock(address_->mutex);
    address_->capture = nullptr;
  }
  if (beside_ != nullptr) cudaStreamDestroy(beside_);
  if (edge_ != nullptr) cudaEventDestroy(edge_);
  cudaFreeHost(told_);
}

CallerCapture::Recorded CallerCapture::run_dry(
    const std::function<void()>& work) {
  Recording recording(engine_);
  try {
    work();
  } catch (const NeedsResults&) {
    throw UsageError(
        "work that needs numbers in this process cannot be captured");
  }
  if (recording.arenas_grew())
    throw UsageError(
        "captured work needs more scratch memory than earlier work; do the "
        "same work once before it is captured");
  return {recording.signature(), std::make_unique<ReplayedMemory>(
                                     recording.scalars(), recording.tables())};
}

void CallerCapture::record(const Recorded& recorded,
                           const std::function<void()>& work,
                           cudaStream_t stream) {
  Recording recording(engine_, recorded.memory->scalars(),
                      recorded.memory->tables());
  recording.capture_on(stream, work);
  CANZONA_CHECK(recording.signature() == recorded.signature,
                "work made other calls when it was captured");
}

// The host's part of a replay runs beside `first`.
void CallerCapture::issue(cudaStream_t stream) {
  const MayAllocate may;
  first_ = run_dry(work_.first);
  then_ = run_dry(work_.then);
  told_ = host_memory_of(read_bytes() + kReadBytes);
  check_cuda(cudaStreamCreateWithFlags(&beside_, cudaStreamNonBlocking),
             "cudaStreamCreateWithFlags");
  check_cuda(cudaEventCreateWithFlags(&edge_, cudaEventDisableTiming),
             "cudaEventCreateWithFlags");
  const auto order = [&](cudaStream_t first, cudaStream_t then) {
    check_cuda(cudaEventRecord(edge_, first), "cudaEventRecord");
    check_cuda(cudaStreamWaitEvent(then, edge_, 0), "cudaStreamWaitEvent");
  };
  order(stream, beside_);
  for (size_t i = 0; i < work_.reads.size(); ++i)
    read_back(told_ + i * kReadBytes, work_.reads[i].from, work_.reads[i].bytes,
              beside_);
  check_cuda(cudaLaunchHostFunc(beside_, begin_replay, address_),
             "cudaLaunchHostFunc");
  then_.memory->copy(beside_);
  first_.memory->copy(stream);
  record(first_, work_.first, stream);
  order(beside_, stream);
  engine_.raise(work_.refusal, then_.memory->refusal());
  record(then_, work_.then, stream);
  read_back(told_ + read_bytes(),
            reinterpret_cast<const std::byte*>(work_.skip), sizeof(int32_t),
            stream);
  check_cuda(cudaLaunchHostFunc(stream, end_replay, address_),
             "cudaLaunchHostFunc");
}

int64_t CallerCapture::read_bytes() const {
  return kReadBytes * std::ssize(work_.reads);
}

// Asks `then` for its scalars; false if it would do something else now.
bool CallerCapture::renew() {
  if (!work_.before({told_, static_cast<size_t>(read_bytes())})) return false;
  Recording recording(engine_);
  try {
    work_.then();
  } catch (...) {
    return false;
  }
  return recording.signature() == then_.signature &&
         then_.memory->write(recording.scalars().bytes());
}

void CallerCapture::begin_replay(void* address) {
  auto& at = *static_cast<Address*>(address);
  const std::lock_guard lock(at.mutex);
  if (at.capture == nullptr) return;
  at.capture->is_refused_ = !at.capture->renew();
  at.capture->then_.memory->refuse(at.capture->is_refused_);
}

void CallerCapture::end_replay(void* address) {
  auto& at = *static_cast<Address*>(address);
  const std::lock_guard lock(at.mutex);
  if (at.capture == nullptr) return;
  CallerCapture& capture = *at.capture;
  int32_t skipped = 0;
  std::memcpy(&skipped, capture.told_ + capture.read_bytes(), sizeof(skipped));
  capture.work_.after(skipped != 0, capture.is_refused_);
}

std::unique_ptr<CapturedPart> add_to_capture(Engine& engine,
                                             CapturedWork work) {
  if (engine.kind() != "cuda")
    throw UsageError("only work of a GPU can be part of a CUDA graph");
  auto& gpu = static_cast<CudaEngine&>(engine);
  const cudaStream_t stream = gpu.stream();
  if (!is_being_captured(stream))
    throw UsageError("the engine's stream is not being captured");
  auto part = std::make_unique<CallerCapture>(gpu, std::move(work));
  part->issue(stream);
  return part;
}

}  // namespace canzona::linalg

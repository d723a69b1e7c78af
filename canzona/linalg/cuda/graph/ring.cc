#include "canzona/linalg/cuda/graph/ring.h"

#include <algorithm>
#include <cstring>

#include "canzona/linalg/cuda/check.h"

namespace canzona {
namespace {

constexpr int64_t kSize = int64_t{1} << 20;
constexpr int64_t kRingAlignment = 16;

int64_t round_up(int64_t bytes) {
  return (bytes + kRingAlignment - 1) / kRingAlignment * kRingAlignment;
}

}  // namespace

Ring::~Ring() {
  for (const Memory& memory : memories_) {
    cudaFreeHost(memory.host);
    cudaFree(memory.device);
  }
}

const std::byte* Ring::put(std::span<const std::byte> bytes,
                           cudaStream_t stream) {
  const int64_t offset = take(static_cast<int64_t>(bytes.size()), stream);
  std::byte* place = memories_.back().host + offset;
  if (!bytes.empty()) std::memcpy(place, bytes.data(), bytes.size());
  return place;
}

const std::byte* Ring::put_on_device(std::span<const std::byte> bytes,
                                     cudaStream_t stream) {
  const std::byte* from = put(bytes, stream);
  const Memory& memory = memories_.back();
  std::byte* to = memory.device + (from - memory.host);
  if (!bytes.empty())
    check_cuda(
        cudaMemcpyAsync(to, from, bytes.size(), cudaMemcpyHostToDevice, stream),
        "copy of a table");
  return to;
}

// A call may put several times before it launches; a quarter of the ring
// leaves room for that.
int64_t Ring::take(int64_t bytes, cudaStream_t stream) {
  const int64_t size = std::max(round_up(bytes), kRingAlignment);
  if (memories_.empty()) add(kSize);
  if (size > memories_.back().size / 4) add(size * 8);
  if (used_ + size > memories_.back().size) {
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    used_ = 0;
  }
  const int64_t offset = used_;
  used_ += size;
  return offset;
}

void Ring::add(int64_t size) {
  Memory memory;
  memory.size = size;
  void* place = nullptr;
  check_cuda(cudaHostAlloc(&place, static_cast<size_t>(size),
                           cudaHostAllocMapped | cudaHostAllocPortable),
             "cudaHostAlloc");
  memory.host = static_cast<std::byte*>(place);
  const cudaError_t status = cudaMalloc(&place, static_cast<size_t>(size));
  if (status != cudaSuccess) cudaFreeHost(memory.host);
  check_cuda(status, "cudaMalloc");
  memory.device = static_cast<std::byte*>(place);
  memories_.push_back(memory);
  used_ = 0;
}

}  // namespace canzona

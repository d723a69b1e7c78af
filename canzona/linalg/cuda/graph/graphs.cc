#include "canzona/linalg/cuda/graph/graphs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/device.h"

namespace canzona::linalg {
namespace {

std::byte* on_device(int64_t bytes) {
  void* memory = nullptr;
  check_cuda(
      cudaMalloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 16))),
      "cudaMalloc");
  return static_cast<std::byte*>(memory);
}

std::byte* pinned(int64_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMallocHost(&memory,
                            static_cast<size_t>(std::max<int64_t>(bytes, 16))),
             "cudaMallocHost");
  return static_cast<std::byte*>(memory);
}

}  // namespace

Graph::Graph(int64_t scalar_bytes, std::span<const std::byte> tables)
    : scalar_bytes_(scalar_bytes) {
  try {
    scalars_ = on_device(scalar_bytes);
    tables_ = on_device(static_cast<int64_t>(tables.size()));
    rows_ = pinned(scalar_bytes * static_cast<int64_t>(kRows));
    for (cudaEvent_t& event : copied_)
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                 "cudaEventCreateWithFlags");
    if (!tables.empty()) {
      check_cuda(cudaMemcpy(tables_, tables.data(), tables.size(),
                            cudaMemcpyHostToDevice),
                 "copy of a graph's tables");
      // The copy may return before it is complete.
      check_cuda(cudaStreamSynchronize(cudaStreamLegacy),
                 "copy of a graph's tables");
    }
  } catch (...) {
    release();
    throw;
  }
}

Graph::~Graph() { release(); }

// Launches may still read the memory, and freeing it does not promise to wait.
void Graph::release() {
  if (stream_ != nullptr) cudaStreamSynchronize(stream_);
  if (work_ != nullptr) cudaGraphExecDestroy(work_);
  cudaFree(scalars_);
  cudaFree(tables_);
  cudaFreeHost(rows_);
  for (cudaEvent_t event : copied_)
    if (event != nullptr) cudaEventDestroy(event);
}

void Graph::take(cudaGraph_t captured, cudaStream_t stream) {
  check_cuda(cudaGraphInstantiate(&work_, captured, 0), "cudaGraphInstantiate");
  check_cuda(cudaGraphUpload(work_, stream), "cudaGraphUpload");
  stream_ = stream;
}

void Graph::launch(std::span<const std::byte> scalars, cudaStream_t stream) {
  CANZONA_CHECK_EQ(scalars.size(), scalar_bytes_, "bytes of a graph's scalars");
  if (!scalars.empty()) {
    const cudaEvent_t copied = copied_[next_row_];
    // Only a caller that is kRows launches ahead of the device waits.
    if (cudaEventQuery(copied) == cudaErrorNotReady)
      check_cuda(cudaEventSynchronize(copied), "cudaEventSynchronize");
    std::byte* row = rows_ + next_row_ * scalars.size();
    std::memcpy(row, scalars.data(), scalars.size());
    check_cuda(cudaMemcpyAsync(scalars_, row, scalars.size(),
                               cudaMemcpyHostToDevice, stream),
               "copy of a graph's scalars");
    check_cuda(cudaEventRecord(copied, stream), "cudaEventRecord");
    next_row_ = (next_row_ + 1) % kRows;
  }
  check_cuda(cudaGraphLaunch(work_, stream), "cudaGraphLaunch");
}

Graph* Graphs::find(const Signature& signature) {
  const auto entry =
      std::find_if(entries_.begin(), entries_.end(),
                   [&](const Entry& e) { return e.signature == signature; });
  if (entry == entries_.end()) return nullptr;
  entry->last_use = ++clock_;
  return entry->graph.get();
}

void Graphs::add(const Signature& signature, std::unique_ptr<Graph> graph) {
  if (entries_.size() == kMost)
    entries_.erase(std::min_element(entries_.begin(), entries_.end(),
                                    [](const Entry& a, const Entry& b) {
                                      return a.last_use < b.last_use;
                                    }));
  entries_.push_back({signature, std::move(graph), ++clock_});
}

namespace {

constexpr int64_t kSize = int64_t{1} << 20;
constexpr int64_t kRingAlignment = 16;

int64_t round_up(int64_t bytes) {
  return (bytes + kRingAlignment - 1) / kRingAlignment * kRingAlignment;
}

}  // namespace

Ring::~Ring() {
  for (cudaEvent_t event : issued_)
    if (event != nullptr) cudaEventDestroy(event);
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

// A call may put several entries before it launches; all of them must fit into
// one part.
int64_t Ring::take(int64_t bytes, cudaStream_t stream) {
  constexpr int64_t kPutsOfACall = 8;
  const int64_t size = std::max(round_up(bytes), kRingAlignment);
  if (memories_.empty()) add(kSize);
  if (size * kPutsOfACall * kParts > memories_.back().size)
    add(2 * size * kPutsOfACall * kParts);
  const int64_t part = memories_.back().size / kParts;
  if (used_ + size > (part_ + 1) * part) enter_next_part(stream);
  const int64_t offset = used_;
  used_ += size;
  return offset;
}

// Launches that read the previous part have been issued when the next one is
// entered, but not necessarily when this one was.
void Ring::enter_next_part(cudaStream_t stream) {
  const auto at = [this](int part) -> cudaEvent_t {
    return issued_[static_cast<size_t>((part + kParts) % kParts)];
  };
  check_cuda(cudaEventRecord(at(part_ - 1), stream), "cudaEventRecord");
  part_ = (part_ + 1) % kParts;
  if (cudaEventQuery(at(part_)) == cudaErrorNotReady)
    check_cuda(cudaEventSynchronize(at(part_)), "cudaEventSynchronize");
  used_ = part_ * (memories_.back().size / kParts);
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
  part_ = 0;
  for (cudaEvent_t& event : issued_) {
    if (event != nullptr) cudaEventDestroy(event);
    check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  }
}

void Signature::add(std::string_view text) {
  add_bytes(std::as_bytes(std::span(text)));
}

void Signature::add_bytes(std::span<const std::byte> bytes) {
  mix(bytes.size());
  while (!bytes.empty()) {
    uint64_t word = 0;
    const size_t size = std::min(bytes.size(), sizeof word);
    std::memcpy(&word, bytes.data(), size);
    mix(word);
    bytes = bytes.subspan(size);
  }
}

}  // namespace canzona::linalg

#include "canzona/linalg/cuda/graph/graphs.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/linalg/cuda/check.h"

namespace canzona {
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
      // It may return when the bytes are on their way.
      check_cuda(cudaStreamSynchronize(cudaStreamLegacy),
                 "copy of a graph's tables");
    }
  } catch (...) {
    release();
    throw;
  }
}

Graph::~Graph() { release(); }

// Freeing device memory waits for launches that may still read it.
void Graph::release() {
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
}

void Graph::launch(std::span<const std::byte> scalars, cudaStream_t stream) {
  CANZONA_CHECK_EQ(scalars.size(), scalar_bytes_, "bytes of a graph's scalars");
  if (!scalars.empty()) {
    const cudaEvent_t copied = copied_[next_row_];
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

}  // namespace canzona

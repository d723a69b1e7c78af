// Work that was captured, ready to be launched again.
//
//   Graphs graphs;
//   if (Graph* known = graphs.find(signature)) known->launch(scalars, stream);
//
// A graph has memory of its own for scalars and tables: kernels read them
// there. One thread at a time; a graph is launched on one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "canzona/linalg/cuda/graph/signature.h"

namespace canzona {

class Graph {
 public:
  // Memory for so many bytes of scalars, and the tables, copied.
  Graph(int64_t scalar_bytes, std::span<const std::byte> tables);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::byte* scalars() const { return scalars_; }
  std::byte* tables() const { return tables_; }

  // Takes what was captured, and gets it ready.
  void take(cudaGraph_t captured, cudaStream_t stream);
  void launch(std::span<const std::byte> scalars, cudaStream_t stream);

 private:
  // So many launches may be under way before the next one has to wait.
  static constexpr size_t kRows = 64;

  void release();

  int64_t scalar_bytes_;
  std::byte* scalars_ = nullptr;
  std::byte* tables_ = nullptr;
  std::byte* rows_ = nullptr;  // in this process: scalars on their way
  std::array<cudaEvent_t, kRows> copied_ = {};
  size_t next_row_ = 0;
  cudaGraphExec_t work_ = nullptr;
};

// Keeps the graphs that were used last.
class Graphs {
 public:
  Graph* find(const Signature& signature);
  void add(const Signature& signature, std::unique_ptr<Graph> graph);
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }

 private:
  static constexpr size_t kMost = 1024;

  struct Entry {
    Signature signature;
    std::unique_ptr<Graph> graph;
    int64_t last_use = 0;
  };
  std::vector<Entry> entries_;
  int64_t clock_ = 0;
};

// Memory of this process that the GPU can read, for what kernels need once:
// scalars, and tables on their way to the device.
//
//   const std::byte* scalars = ring.put(bytes, stream);
//   kernel<<<…, stream>>>(scalars);
//
// An entry stays valid for the launches that follow it at once. The ring has
// parts, each of which is used again when the device has done what was issued
// with it; only a caller who is a whole ring ahead waits. One thread at a time,
// one stream.
class Ring {
 public:
  Ring() = default;
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // In memory of this process, mapped: for a few numbers.
  const std::byte* put(std::span<const std::byte> bytes, cudaStream_t stream);
  // In memory of the device, copied there by the stream.
  const std::byte* put_on_device(std::span<const std::byte> bytes,
                                 cudaStream_t stream);

 private:
  struct Memory {
    std::byte* host = nullptr;
    std::byte* device = nullptr;  // as large
    int64_t size = 0;
  };

  static constexpr int kParts = 8;

  // The offset of so many bytes in the memory in use, the last one.
  int64_t take(int64_t bytes, cudaStream_t stream);
  void add(int64_t size);
  void enter_next_part(cudaStream_t stream);

  // Older ones are smaller, and kept: launches under way may read them.
  std::vector<Memory> memories_;
  int64_t used_ = 0;
  int part_ = 0;
  // By part of the memory in use: what was issued with it. Reached if it was
  // never recorded.
  std::array<cudaEvent_t, kParts> issued_ = {};
};

}  // namespace canzona

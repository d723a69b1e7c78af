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
  static constexpr size_t kRows = 8;

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

}  // namespace canzona

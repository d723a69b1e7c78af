// A Recording is shared by several engines while one of them repeats work
// (CudaEngine::repeat): first in a dry run, in which nothing is launched, then,
// if that sequence of calls is new, while their streams are being captured.
//
// Scalars and tables get their offsets in the order in which they are pushed,
// which is the same in both. Scalars are copied before every launch; tables are
// part of the signature, and are copied once.
//
// Lives on the stack of repeat. One thread at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "canzona/linalg/cuda/graph/signature.h"

namespace canzona {

class CudaEngine;

// Thrown by a dry run at a call whose result this process needs. It is not an
// Error, because only repeat catches it.
struct NeedsResults {};

// Bytes in the order pushed, each push 16-byte aligned.
class Slots {
 public:
  int64_t append(std::span<const std::byte> bytes);  // returns their offset
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class Recording {
 public:
  explicit Recording(CudaEngine& origin);  // a dry run
  // A capture, with memory for scalars and tables.
  Recording(CudaEngine& origin, std::byte* scalars, std::byte* tables);
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  bool is_dry() const { return scalar_memory_ == nullptr; }
  Signature& signature() { return signature_; }
  const Slots& scalars() const { return scalars_; }
  const Slots& tables() const { return tables_; }

  // Returns the address that kernels will read; meaningless in a dry run.
  const std::byte* push_scalars(std::span<const std::byte> bytes);
  const std::byte* push_table(std::span<const std::byte> bytes);

  // Adds an engine until the recording ends.
  void join(CudaEngine& engine);
  // Releases all engines and returns those that took part.
  std::vector<CudaEngine*> release();
  // True if an arena has grown since its engine joined.
  bool arenas_grew() const;

  // Makes work that `then` gets from now on happen after work that `first` was
  // given.
  void order(CudaEngine& first, CudaEngine& then);
  void if_zero(CudaEngine& engine, const int32_t* flag,
               const std::function<void()>& work);

  // Captures the work; the caller must destroy the graph.
  cudaGraph_t capture(const std::function<void()>& work);
  cudaStream_t stream_of(CudaEngine& engine);

 private:
  struct Member {
    CudaEngine* engine = nullptr;
    cudaStream_t stream = nullptr;
  };
  // The graph itself, or the body of a condition, which is captured on separate
  // streams. The first member began it.
  using Body = std::vector<Member>;

  void note(std::string_view name, const CudaEngine& engine);
  cudaGraph_t run_body(cudaStream_t begun, const std::function<void()>& work);
  void abandon_body(cudaStream_t begun);
  void capture_condition(CudaEngine& engine, const int32_t* flag,
                         const std::function<void()>& work);
  void add_edge(cudaStream_t from, cudaStream_t to);
  void gather(cudaStream_t to);     // makes `to` wait for all of the innermost
                                    // body
  void scatter(cudaStream_t from);  // makes all of it wait for `from`
  cudaStream_t new_stream();

  CudaEngine& origin_;
  std::byte* scalar_memory_ = nullptr;
  std::byte* table_memory_ = nullptr;
  Signature signature_;
  Slots scalars_;
  Slots tables_;
  std::vector<CudaEngine*> engines_;
  std::vector<int64_t> reserved_;  // by the arenas when the engines joined
  std::vector<Body> bodies_;       // innermost last
  std::vector<cudaStream_t> streams_;
  cudaEvent_t edge_ = nullptr;
};

}  // namespace canzona

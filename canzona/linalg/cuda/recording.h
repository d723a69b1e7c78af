// What several engines write down together while one of them repeats work
// (CudaEngine::repeat): first in a dry run, in which nothing is launched, then,
// if that sequence of calls is new, while their streams are being captured.
//
// Scalars and tables get their places in the order in which they are pushed,
// which is the same in both. Scalars are copied before every launch; tables
// are part of the signature, and are copied once.
//
// Lives on the stack of repeat; one thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "canzona/linalg/cuda/signature.h"

namespace canzona {

class CudaEngine;

// Thrown by a dry run at a call whose result this process must see. Not an
// Error: nobody but repeat catches it.
struct NeedsResults {};

// Bytes in the order of pushing, each push aligned to 16.
class Slots {
 public:
  // Gives the offset of `size` new bytes.
  int64_t take(int64_t size);
  int64_t append(std::span<const std::byte> bytes);  // keeps them, too
  std::span<const std::byte> bytes() const { return bytes_; }
  int64_t size() const { return size_; }

 private:
  std::vector<std::byte> bytes_;
  int64_t size_ = 0;
};

class Recording {
 public:
  explicit Recording(CudaEngine& origin);            // a dry run
  Recording(CudaEngine& origin, std::byte* scalars,  // a capture, with
            std::byte* tables);                      // memory for both
  ~Recording();
  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  bool is_dry() const { return scalar_memory_ == nullptr; }
  Signature& signature() { return signature_; }
  const Slots& scalars() const { return scalars_; }
  const Slots& tables() const { return tables_; }

  // Where kernels will find them; no address of use in a dry run.
  const std::byte* push_scalars(std::span<const std::byte> bytes);
  const std::byte* push_table(std::span<const std::byte> bytes);

  // Takes an engine in, until the recording ends.
  void join(CudaEngine& engine);
  std::span<CudaEngine* const> engines() const { return engines_; }
  // Whether an arena has grown since its engine joined.
  bool arenas_grew() const;

  // Capture. Bodies of conditions are captured on streams of their own; the
  // outermost body, number 0, is the graph itself.
  cudaStream_t stream_of(CudaEngine& engine);
  void begin();
  cudaGraph_t end();
  void if_zero(CudaEngine& engine, const int32_t* flag,
               const std::function<void()>& work);
  // What `first` was given happens before what `then` is given from now on.
  void order(CudaEngine& first, CudaEngine& then);

 private:
  struct Member {
    CudaEngine* engine = nullptr;
    cudaStream_t stream = nullptr;
  };
  using Body = std::vector<Member>;  // the first one began it

  Member* find(CudaEngine& engine);
  void gather();   // all of the innermost body before its first
  void scatter();  // and the other way round
  cudaStream_t side_stream();
  void set_condition(cudaStream_t stream, const int32_t* flag,
                     cudaGraph_t* body);

  CudaEngine& origin_;
  std::byte* scalar_memory_ = nullptr;
  std::byte* table_memory_ = nullptr;
  Signature signature_;
  Slots scalars_;
  Slots tables_;
  std::vector<CudaEngine*> engines_;
  std::vector<int64_t> reserved_;
  std::vector<Body> bodies_;
  std::vector<cudaStream_t> side_streams_;
  cudaEvent_t edge_ = nullptr;
};

}  // namespace canzona

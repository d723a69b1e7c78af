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

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "canzona/linalg/engine.h"

namespace canzona::linalg {

// Identifies a sequence of calls: what was called, on which memory, with which
// shapes. Scalars are not part of it. Equal signatures mean equal work.
//
//   Signature s;
//   s.add("axpby");
//   s.add(matrices);
//   if (s == other) …
//
// It has 128 bits, mixed well enough that accidental collisions do not occur;
// it does not resist deliberate ones.
class Signature {
 public:
  void add(std::string_view text);

  // The address counts, not the contents.
  template <class T>
  void add(T* pointer) {
    mix(reinterpret_cast<uintptr_t>(pointer));
  }
  template <class T>
  requires std::integral<T> || std::is_enum_v<T>
  void add(T value) { mix(static_cast<uint64_t>(value)); }
  void add(double value) { mix(std::bit_cast<uint64_t>(value)); }
  template <class Byte>
  void add(const BasicMatrices<Byte>& m) {
    add(m.data);
    mix(static_cast<uint64_t>(m.dtype) << 32 | (m.places != nullptr ? 1U : 0U));
    add(m.rows);
    add(m.cols);
    add(m.row_stride);
    add(m.count);
    add(m.matrix_stride);
    if (m.places != nullptr)
      for (int64_t i = 0; i < m.count; ++i) add(m.places[i]);
  }
  void add(ConstRun run) {
    add(run.data);
    add(run.dtype);
  }
  void add(ConstOrders orders) {
    add(orders.data);
    add(orders.length);
    add(orders.count);
  }
  // The contents count.
  void add_bytes(std::span<const std::byte> bytes);

  bool operator==(const Signature&) const = default;
  uint64_t low() const { return low_; }

 private:
  void mix(uint64_t word) {
    low_ = (low_ ^ word) * 0x9e3779b97f4a7c15ULL;
    low_ ^= low_ >> 32;
    high_ = (high_ + word) * 0xc2b2ae3d27d4eb4fULL;
    high_ ^= high_ >> 29;
  }

  uint64_t low_ = 0x243f6a8885a308d3ULL;
  uint64_t high_ = 0x13198a2e03707344ULL;
};

class CudaEngine;

// Thrown by a dry run at a call whose result this process needs. It is not an
// Error, because only repeat catches it.
struct NeedsResults {};

// Bytes in the order pushed, each push 16-byte aligned.
class PushedBytes {
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
  const PushedBytes& scalars() const { return scalars_; }
  const PushedBytes& tables() const { return tables_; }

  // Returns the address that kernels will read; meaningless in a dry run.
  const std::byte* push_scalars(std::span<const std::byte> bytes);
  const std::byte* push_table(std::span<const std::byte> bytes);

  // Adds an engine until the recording ends.
  void join(CudaEngine& engine);
  // Releases all engines and returns those that took part.
  std::vector<CudaEngine*> release();
  // True if an arena has grown since its engine joined.
  bool arenas_grew() const;

  // Orders all work that `then` gets from now on after the work that `first`
  // was given.
  void order(CudaEngine& first, CudaEngine& then);
  void if_zero(CudaEngine& engine, const int32_t* flag,
               const std::function<void()>& work);

  // Captures the work; the caller must destroy the graph.
  cudaGraph_t capture(const std::function<void()>& work);
  // Adds the work to a capture of the caller's that has begun on this stream,
  // which must be the origin's.
  void capture_on(cudaStream_t stream, const std::function<void()>& work);
  cudaStream_t stream_of(CudaEngine& engine);

 private:
  struct Member {
    CudaEngine* engine = nullptr;
    cudaStream_t stream = nullptr;
  };
  // A body is the graph itself, or that of a condition, which is captured on
  // streams of its own. The first member began it.
  using Body = std::vector<Member>;

  void note(std::string_view name, const CudaEngine& engine);
  cudaGraph_t run_body(cudaStream_t begun, const std::function<void()>& work);
  void join_streams(cudaStream_t begun);
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
  PushedBytes scalars_;
  PushedBytes tables_;
  std::vector<CudaEngine*> engines_;
  std::vector<int64_t> reserved_;  // by each arena when its engine joined
  std::vector<Body> bodies_;       // innermost last
  std::vector<cudaStream_t> streams_;
  cudaEvent_t edge_ = nullptr;
};

}  // namespace canzona::linalg

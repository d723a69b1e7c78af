// Captured work, ready to be launched again.
//
//   Graphs graphs;
//   if (Graph* known = graphs.find(signature)) known->launch(scalars, stream);
//
// A graph has its own memory for scalars and tables, which kernels read. One
// thread at a time; a graph must always be launched on the same stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "canzona/linalg/cuda/graph/recording.h"
#include "canzona/linalg/engine.h"

namespace canzona::linalg {

// Times the calls of one engine, by the GPU itself.
//
//   Profile profile;
//   profile.begin("gram", stream);   // ends the call before
//   …
//   for (const Engine::StageTime& t : profile.end(stream)) …
//
// Lives for one piece of work. One thread at a time.
class Profile {
 public:
  Profile() = default;
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  void begin(std::string_view call, cudaStream_t stream);
  // Waits for the device; the longest come first.
  std::vector<Engine::StageTime> end(cudaStream_t stream);

 private:
  struct Mark {
    std::string call;
    cudaEvent_t event;
  };
  std::vector<Mark> marks_;
};

class Graph {
 public:
  // Allocates memory for this many bytes of scalars, and copies the tables.
  Graph(int64_t scalar_bytes, std::span<const std::byte> tables);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  std::byte* scalars() const { return scalars_; }
  std::byte* tables() const { return tables_; }

  // Takes captured work and instantiates it.
  void take(cudaGraph_t captured, cudaStream_t stream);
  void launch(std::span<const std::byte> scalars, cudaStream_t stream);

 private:
  // The number of launches that may be in flight before the next one has to
  // wait.
  static constexpr size_t kRows = 64;

  void release();

  int64_t scalar_bytes_;
  std::byte* scalars_ = nullptr;
  std::byte* tables_ = nullptr;
  std::byte* rows_ = nullptr;  // scalars in transit, in host memory
  std::array<cudaEvent_t, kRows> copied_ = {};
  size_t next_row_ = 0;
  cudaGraphExec_t work_ = nullptr;
  cudaStream_t stream_ = nullptr;  // of all launches
};

// Keeps the most recently used graphs.
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

// Host memory that the GPU can read, for what kernels need once: scalars, and
// tables in transit to the device.
//
//   const std::byte* scalars = ring.put(bytes, stream);
//   kernel<<<…, stream>>>(scalars);
//
// An entry stays valid for the launches that follow it immediately. The ring
// has parts, each of which is reused when the device has done what was issued
// with it; only a caller that is a whole ring ahead waits. One thread at a
// time, one stream.
class Ring {
 public:
  Ring() = default;
  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Puts bytes, which should be few, into mapped host memory.
  const std::byte* put(std::span<const std::byte> bytes, cudaStream_t stream);
  // Puts bytes into device memory; the stream copies them there.
  const std::byte* put_on_device(std::span<const std::byte> bytes,
                                 cudaStream_t stream);

 private:
  struct Memory {
    std::byte* host = nullptr;
    std::byte* device = nullptr;  // of the same size
    int64_t size = 0;
  };

  static constexpr int kParts = 8;

  // Reserves this many bytes in the memory in use, which is the last one, and
  // returns their offset.
  int64_t take(int64_t bytes, cudaStream_t stream);
  void add(int64_t size);
  void enter_next_part(cudaStream_t stream);

  // Earlier ones are smaller and kept, because launches in flight may read
  // them.
  std::vector<Memory> memories_;
  int64_t used_ = 0;
  int part_ = 0;
  // Each part of the memory in use has an event that follows what was issued
  // with it. An event that was never recorded counts as reached.
  std::array<cudaEvent_t, kParts> issued_ = {};
};

}  // namespace canzona::linalg

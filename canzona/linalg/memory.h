// A Memory allocates memory of a device.
//
//   Arena arena(engine.memory());
//
// It must outlive what was allocated from it. Any thread may call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "canzona/linalg/matrix.h"

namespace canzona {

class Memory {
 public:
  virtual ~Memory() = default;

  // Returns uninitialized memory, aligned to 128 bytes or more; throws
  // std::bad_alloc if there is none left.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
};

// Host memory; large blocks use huge pages.
Memory& host_memory();

// MemoryOps are the operations of collectives on a device's memory, without an
// engine.
//
//   const MemoryOps& ops = memory_ops("cuda");
//   ops.add_fp32(sum, a, b, count);
//
// Functions are complete when they return, except those of a lane (below). Any
// number of threads may call. On a GPU they do not wait for engines: callers
// that use memory on which an engine works must first wait for the engine. An
// element's bits depend neither on its position nor on its neighbours, and are
// the same on every device, except for sums of NaNs. Pointers must be aligned
// to their elements. A result may be an operand, but must not partly overlap
// one.
class MemoryOps {
 public:
  virtual ~MemoryOps() = default;

  // True for host memory.
  virtual bool is_host() const = 0;

  // Aligned to 128 bytes or more; throws std::bad_alloc if there is none left.
  virtual std::byte* allocate(int64_t bytes) const = 0;
  virtual void release(std::byte* memory) const = 0;

  // Either side may be host or device memory.
  virtual void copy(std::byte* to, const std::byte* from,
                    int64_t bytes) const = 0;

  virtual void add_fp32(float* sum, const float* a, const float* b,
                        int64_t count) const = 0;
  // Modulo 2^64.
  virtual void add_int64(int64_t* sum, const int64_t* a, const int64_t* b,
                         int64_t count) const = 0;
  virtual void max_int64(int64_t* larger, const int64_t* a, const int64_t* b,
                         int64_t count) const = 0;

  // Rounds to nearest, ties to even; a NaN stays a NaN.
  virtual void to_bf16(uint16_t* to, const float* from,
                       int64_t count) const = 0;
  virtual void from_bf16(float* to, const uint16_t* from,
                         int64_t count) const = 0;

  // Adds all pieces at once, of fp32 or bf16, in fp32 by a binary tree:
  // neighbours first, an odd one carried up. `sum` may be one of the fp32
  // pieces. Returns false if there are too many pieces, or this memory does not
  // support it.
  virtual bool add_tree(float* /*sum*/,
                        std::span<const float* const> /*pieces*/,
                        int64_t /*count*/) const {
    return false;
  }
  virtual bool add_tree(float* /*sum*/,
                        std::span<const uint16_t* const> /*pieces*/,
                        int64_t /*count*/) const {
    return false;
  }
  // The same for fp32 pieces, each of which is rounded to bf16 first.
  virtual bool add_rounded_tree(float* /*sum*/,
                                std::span<const float* const> /*pieces*/,
                                int64_t /*count*/) const {
    return false;
  }
  // The maximum number of pieces for these three; 0 if they always return
  // false.
  virtual int most_tree_pieces() const { return 0; }
};

// A point in a device's work. It counts as reached if it was never recorded. It
// may be recorded again; waits that have been issued before still refer to the
// earlier point.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool reached() = 0;
  virtual void wait() = 0;  // blocks this thread
  // Returns how long after `earlier` it was reached. Both must be timed, of the
  // same device, and already reached.
  virtual double seconds_after(const Event& /*earlier*/) const { return 0; }
};

// A queue of a device's work beside its engines, for the memory operations of
// collectives: they are enqueued, and the host does not wait for them.
//
//   lane->wait_until(*gradients_are_there);
//   lane->ops().add_fp32(sum, a, b, count);   // only issued
//   lane->record_in(*sums_are_there);
//
// Engine::make_lane() makes it. One thread at a time may issue; any thread may
// query events.
class MemoryLane {
 public:
  virtual ~MemoryLane() = default;

  // These live as long as the lane and keep its order.
  virtual const MemoryOps& ops() const = 0;
  virtual std::unique_ptr<Event> make_event() const = 0;
  virtual std::unique_ptr<Event> make_timed_event() const = 0;
  // Records the event after everything issued so far.
  virtual void record_in(Event& event) = 0;
  // Makes work that is issued from now on wait for the event.
  virtual void wait_until(const Event& event) = 0;
  // A word in host memory, initially 0, that lives as long as the lane. The
  // lane writes it after everything issued so far, or waits until it is at
  // least `value`, modulo 2^32.
  virtual std::atomic<uint32_t>& make_word() = 0;
  virtual void write(std::atomic<uint32_t>& word, uint32_t value) = 0;
  virtual void wait_until(const std::atomic<uint32_t>& word,
                          uint32_t value) = 0;
  // The device's own handle (a cudaStream_t), for libraries that issue to it
  // themselves; null if it has none.
  virtual void* native() { return nullptr; }
};

// Lives as long as the program.
const MemoryOps& cpu_memory_ops();
// Throws UsageError like make_cuda_engine().
const MemoryOps& cuda_memory_ops();
// Takes "cpu" or "cuda"; UsageError names anything else.
const MemoryOps& memory_ops(std::string_view device);

// Scratch memory that is reserved once. Everything a step takes is released at
// once; a second step of the same shapes allocates nothing.
//
//   Arena::Scope scope(engine.arena());
//   Matrices gram = engine.arena().matrices(DType::kFp32, m, m);
//   …                                  // gone at the end of the scope
//
// Blocks are 128-byte aligned and never move while a scope is open, so a larger
// request adds a chunk instead of growing one; the chunks are merged when the
// outermost scope ends. One thread at a time.
class Arena {
 public:
  explicit Arena(Memory& memory = host_memory()) : memory_(memory) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Its destructor releases everything taken since its construction.
  class Scope {
   public:
    explicit Scope(Arena& arena);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Arena& arena_;
    size_t chunk_;
    int64_t used_;
  };

  // Returns uninitialized memory; requires an open scope.
  std::byte* take(int64_t bytes);
  template <class T>
  T* take_array(int64_t count) {
    return reinterpret_cast<T*>(take(count * static_cast<int64_t>(sizeof(T))));
  }
  Matrices matrices(DType dtype, int64_t rows, int64_t cols, int64_t count = 1);

  int64_t reserved() const;  // bytes
  // Reserves at least this many bytes, contiguously. Requires that no scope is
  // open.
  void reserve(int64_t bytes);

 private:
  struct Free {
    Memory* source = nullptr;
    void operator()(std::byte* memory) const { source->release(memory); }
  };
  struct Chunk {
    std::unique_ptr<std::byte, Free> memory;
    int64_t size = 0;
    int64_t used = 0;
  };

  void add_chunk(int64_t bytes);
  void merge_chunks();

  Memory& memory_;
  std::vector<Chunk> chunks_;
  size_t current_ = 0;
  int depth_ = 0;
};

}  // namespace canzona

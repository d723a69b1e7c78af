// A Memory is where the memory of a device comes from.
//
//   Arena arena(engine.memory());
//
// A source outlives what was allocated from it. Any thread may call.
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

  // Uninitialised, aligned to 128 bytes or more; std::bad_alloc if there is
  // none left.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* memory) = 0;
};

// The memory of this process; in large pages where a block is large.
Memory& host_memory();

// MemoryOps are what collectives do to memory of a device, without an engine.
//
//   const MemoryOps& ops = memory_ops("cuda");
//   ops.add_fp32(sum, a, b, count);
//
// Every function has ended when it returns, but for those of a lane (below).
// Any number of threads may call. On a GPU they do not wait for engines:
// whoever uses memory that an engine works on waits for the engine first. An
// element's bits depend neither on its place nor on its neighbours, and are the
// same on every device, a sum of NaNs aside. Pointers are aligned to their
// elements. Results may lie where an operand lies, and overlap none by a part.

class MemoryOps {
 public:
  virtual ~MemoryOps() = default;

  // True if it is memory of this process.
  virtual bool is_host() const = 0;

  // Aligned to 128 bytes or more; std::bad_alloc if there is none left.
  virtual std::byte* allocate(int64_t bytes) const = 0;
  virtual void release(std::byte* memory) const = 0;

  // Either side may be memory of this process or of the device.
  virtual void copy(std::byte* to, const std::byte* from,
                    int64_t bytes) const = 0;

  virtual void add_fp32(float* sum, const float* a, const float* b,
                        int64_t count) const = 0;
  // Modulo 2^64.
  virtual void add_int64(int64_t* sum, const int64_t* a, const int64_t* b,
                         int64_t count) const = 0;
  virtual void max_int64(int64_t* larger, const int64_t* a, const int64_t* b,
                         int64_t count) const = 0;
  // Two words each, the lower first; modulo 2^128.
  virtual void add_int128(uint64_t* sum, const uint64_t* a, const uint64_t* b,
                          int64_t count) const = 0;
  // Such numbers as four limbs of 32 bits, the lowest first, each in a word of
  // its own, and back, with what limbs that were added have to carry. False if
  // this memory has no such way.
  virtual bool to_limbs(uint64_t* limbs, const uint64_t* from,
                        int64_t count) const {
    static_cast<void>(limbs);
    static_cast<void>(from);
    static_cast<void>(count);
    return false;
  }
  virtual void from_limbs(uint64_t* to, const uint64_t* limbs,
                          int64_t count) const {
    static_cast<void>(to);
    static_cast<void>(limbs);
    static_cast<void>(count);
  }

  // To nearest, ties to even; a NaN stays one.
  virtual void to_bf16(uint16_t* to, const float* from,
                       int64_t count) const = 0;
  virtual void from_bf16(float* to, const uint16_t* from,
                         int64_t count) const = 0;

  // All pieces at once, of fp32 or of bf16, added in fp32 by a binary tree:
  // neighbours first, an odd one carried up. `sum` may be one of the fp32
  // pieces. False if there are more than it takes, or this memory has no such
  // way.
  virtual bool add_tree(float* sum, std::span<const float* const> pieces,
                        int64_t count) const {
    static_cast<void>(sum);
    static_cast<void>(pieces);
    static_cast<void>(count);
    return false;
  }
  virtual bool add_tree(float* sum, std::span<const uint16_t* const> pieces,
                        int64_t count) const {
    static_cast<void>(sum);
    static_cast<void>(pieces);
    static_cast<void>(count);
    return false;
  }
  // The same of fp32 pieces, each of which is rounded to bf16 first.
  virtual bool add_rounded_tree(float* sum,
                                std::span<const float* const> pieces,
                                int64_t count) const {
    static_cast<void>(sum);
    static_cast<void>(pieces);
    static_cast<void>(count);
    return false;
  }
  // The most pieces that these three take; 0: they always say false.
  virtual int most_tree_pieces() const { return 0; }
};

// A point in the work of a device. Reached if it was never recorded. It may be
// recorded again; whoever waits by then waits for the point before.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool reached() = 0;
  virtual void wait() = 0;  // this thread does
  // Returns how long after `earlier` it was reached. Both are timed, are of one
  // device, and are reached by now.
  virtual double seconds_after(const Event& earlier) const {
    static_cast<void>(earlier);
    return 0;
  }
};

// A line of a device's work beside its engines, for what collectives do to
// memory: operations take their place in it, and nobody waits for them.
//
//   lane->wait_until(*gradients_are_there);
//   lane->ops().add_fp32(sum, a, b, count);   // only issued
//   lane->record_in(*sums_are_there);
//
// Made by Engine::make_lane(). One thread at a time issues; events may be asked
// by any.
class MemoryLane {
 public:
  virtual ~MemoryLane() = default;

  // They live as long as the lane, whose order they keep.
  virtual const MemoryOps& ops() const = 0;
  virtual std::unique_ptr<Event> make_event() const = 0;
  virtual std::unique_ptr<Event> make_timed_event() const = 0;
  // After all that was issued so far.
  virtual void record_in(Event& event) = 0;
  // Work that is issued from now on happens after the event.
  virtual void wait_until(const Event& event) = 0;
  // A number of this process, 0 at first, that lives as long as the lane; the
  // lane writes it after all that was issued so far, or goes on once it is at
  // least `value`, modulo 2^32.
  virtual std::atomic<uint32_t>& make_word() = 0;
  virtual void write(std::atomic<uint32_t>& word, uint32_t value) = 0;
  virtual void wait_until(const std::atomic<uint32_t>& word,
                          uint32_t value) = 0;
  // The device's own handle (a cudaStream_t), for libraries that issue there
  // themselves; null if it has none.
  virtual void* native() { return nullptr; }
};

// They live as long as the program.
const MemoryOps& cpu_memory_ops();
// UsageError as from make_cuda_engine().
const MemoryOps& cuda_memory_ops();
// "cpu" or "cuda"; UsageError names what else was asked for.
const MemoryOps& memory_ops(std::string_view device);

// Scratch memory that is reserved once. All that a step takes is given back at
// once; a second step of the same shapes finds everything there.
//
//   Arena::Scope scope(engine.arena());
//   Matrices gram = engine.arena().matrices(DType::kFp32, m, m);
//   …                                  // gone at the end of the scope
//
// Blocks lie on 128-byte borders and never move while a scope is open, so a
// larger demand adds a chunk instead of growing one; the chunks become one
// when the outermost scope ends. Not for use by two threads at once.

class Arena {
 public:
  explicit Arena(Memory& memory = host_memory()) : memory_(memory) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Gives back, at its end, what was taken since its beginning.
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

  // Uninitialised; needs an open scope.
  std::byte* take(int64_t bytes);
  template <class T>
  T* take_array(int64_t count) {
    return reinterpret_cast<T*>(take(count * static_cast<int64_t>(sizeof(T))));
  }
  Matrices matrices(DType dtype, int64_t rows, int64_t cols, int64_t count = 1);

  int64_t reserved() const;  // bytes
  // Reserves at least so many bytes, in one piece. Requires that no scope is
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

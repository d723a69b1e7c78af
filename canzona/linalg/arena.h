// Scratch memory that is reserved once. What a step takes is given back all at
// once; a second step of the same shapes finds everything there.
//
//   Arena::Scope scope(engine.arena());
//   Matrices gram = engine.arena().matrices(DType::kFp32, m, m);
//   …                                  // gone at the end of the scope
//
// Blocks lie on 128-byte borders and never move while a scope is open, so a
// larger demand adds a chunk instead of growing one; the chunks become one
// when the outermost scope ends. Not for use by two threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "canzona/linalg/matrix.h"
#include "canzona/linalg/memory.h"

namespace canzona {

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

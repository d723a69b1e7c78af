// Memory that only an engine can reach, for tests: its pages cannot be read or
// written by anybody while no call of the engine runs. Code that touches the
// memory of a device by itself dies here, as it would there.
//
//   RemoteMemory memory;
//   std::byte* there = memory.allocate(64);   // *there kills the process
//   { const RemoteMemory::Access access(memory); … }   // the engine's work
//
// One thread at a time.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <map>
#include <new>

#include "canzona/base/check.h"
#include "canzona/linalg/memory.h"

namespace canzona {

class RemoteMemory final : public Memory {
 public:
  // Opens all of it for as long as it lives; one may live inside another.
  class Access {
   public:
    explicit Access(RemoteMemory& memory) : memory_(memory) {
      if (memory_.depth_++ == 0) memory_.protect(PROT_READ | PROT_WRITE);
    }
    ~Access() {
      if (--memory_.depth_ == 0) memory_.protect(PROT_NONE);
    }
    Access(const Access&) = delete;
    Access& operator=(const Access&) = delete;

   private:
    RemoteMemory& memory_;
  };

  std::byte* allocate(int64_t bytes) override {
    const int64_t page = sysconf(_SC_PAGESIZE);
    const int64_t size = (bytes + page) / page * page;
    void* memory = mmap(nullptr, static_cast<size_t>(size),
                        depth_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    auto* first = static_cast<std::byte*>(memory);
    blocks_[first] = size;
    return first;
  }

  void release(std::byte* memory) override {
    const auto block = blocks_.find(memory);
    CANZONA_CHECK(block != blocks_.end(), "memory of somebody else");
    munmap(memory, static_cast<size_t>(block->second));
    blocks_.erase(block);
  }

  bool owns(const std::byte* place) const {
    auto block = blocks_.upper_bound(const_cast<std::byte*>(place));
    if (block == blocks_.begin()) return false;
    --block;
    return place < block->first + block->second;
  }

 private:
  void protect(int access) {
    for (const auto& [first, size] : blocks_)
      mprotect(first, static_cast<size_t>(size), access);
  }

  std::map<std::byte*, int64_t> blocks_;
  int depth_ = 0;
};

}  // namespace canzona

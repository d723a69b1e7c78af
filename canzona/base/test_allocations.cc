#include "canzona/base/test_allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};

void* allocate(size_t size, size_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const size_t whole = (size + alignment) / alignment * alignment;
  void* memory = std::aligned_alloc(alignment, whole);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace canzona {

int64_t num_allocations() {
  return allocations.load(std::memory_order_relaxed);
}

}  // namespace canzona

// Every other form of operator new ends in one of these.
void* operator new(size_t size) {
  return allocate(size, alignof(std::max_align_t));
}
void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment));
}
// The sanitizers provide this one themselves, with a matching delete.
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  try {
    return allocate(size, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t, std::align_val_t) noexcept {
  std::free(memory);
}

#include "canzona/linalg/memory.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace canzona {
namespace {

constexpr int64_t kAlignment = 128;
constexpr int64_t kHugePage = int64_t{2} << 20;

class HostMemory final : public Memory {
 public:
  std::byte* allocate(int64_t bytes) override {
    const int64_t alignment = bytes >= kHugePage ? kHugePage : kAlignment;
    const int64_t rounded = std::max<int64_t>(bytes, 1) + alignment - 1;
    const auto size = static_cast<size_t>(rounded / alignment * alignment);
    void* memory = std::aligned_alloc(static_cast<size_t>(alignment), size);
    if (memory == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    // Products walk down columns: with small pages each row is another entry
    // of the address cache. A wish only; the kernel may be set to refuse it.
    if (alignment == kHugePage)
      static_cast<void>(madvise(memory, size, MADV_HUGEPAGE));
#endif
    return static_cast<std::byte*>(memory);
  }

  void release(std::byte* memory) override { std::free(memory); }
};

}  // namespace

Memory& host_memory() {
  static HostMemory memory;
  return memory;
}

}  // namespace canzona

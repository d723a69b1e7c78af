#include "canzona/linalg/memory.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <utility>

#include "canzona/base/check.h"

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
    // Products walk down columns: with small pages each row is another TLB
    // entry. This is only a hint, which the kernel may ignore.
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

namespace {

// The largest alignment that tensor cores and vector units require.
constexpr int64_t kBlockAlignment = 128;
constexpr int64_t kMatrixAlignment = 64;
constexpr int64_t kLargeStep = int64_t{2} << 20;
constexpr int64_t kSmallestChunk = int64_t{64} << 10;

int64_t round_up(int64_t bytes, int64_t step) {
  return (bytes + step - 1) / step * step;
}

}  // namespace

Arena::Scope::Scope(Arena& arena)
    : arena_(arena),
      chunk_(arena.current_),
      used_(arena.chunks_.empty() ? 0 : arena.chunks_[chunk_].used) {
  ++arena_.depth_;
}

Arena::Scope::~Scope() {
  std::vector<Chunk>& chunks = arena_.chunks_;
  for (size_t i = chunk_ + 1; i < chunks.size(); ++i) chunks[i].used = 0;
  if (!chunks.empty()) chunks[chunk_].used = used_;
  arena_.current_ = chunk_;
  if (--arena_.depth_ == 0) arena_.merge_chunks();
}

std::byte* Arena::take(int64_t bytes) {
  CANZONA_CHECK(depth_ > 0, "memory taken from an arena outside any scope");
  CANZONA_CHECK(bytes >= 0, bytes, " bytes taken from an arena");
  // Two blocks never share an address, not even empty ones.
  const int64_t size = round_up(std::max<int64_t>(bytes, 1), kBlockAlignment);
  if (chunks_.empty()) add_chunk(size);
  while (chunks_[current_].size - chunks_[current_].used < size) {
    if (current_ + 1 == chunks_.size()) add_chunk(size);
    ++current_;
  }
  Chunk& chunk = chunks_[current_];
  std::byte* block = chunk.memory.get() + chunk.used;
  chunk.used += size;
  return block;
}

Matrices Arena::matrices(DType dtype, int64_t rows, int64_t cols,
                         int64_t count) {
  Matrices result;
  result.dtype = dtype;
  result.rows = rows;
  result.cols = cols;
  result.row_stride = cols;
  result.count = count;
  result.matrix_stride =
      round_up(rows * cols, kMatrixAlignment / size_of(dtype));
  result.data = take(count * result.matrix_stride * size_of(dtype));
  return result;
}

int64_t Arena::reserved() const {
  int64_t bytes = 0;
  for (const Chunk& chunk : chunks_) bytes += chunk.size;
  return bytes;
}

void Arena::reserve(int64_t bytes) {
  CANZONA_CHECK(depth_ == 0, "an arena reserves memory inside a scope");
  if (reserved() >= bytes) return;
  chunks_.clear();
  current_ = 0;
  add_chunk(bytes);
}

void Arena::add_chunk(int64_t bytes) {
  const int64_t size = bytes >= kLargeStep ? round_up(bytes, kLargeStep)
                                           : std::max(bytes, kSmallestChunk);
  Chunk chunk{{memory_.allocate(size), Free{&memory_}}, size, 0};
  chunks_.push_back(std::move(chunk));
}

// Runs in a destructor: if there is no memory for one large chunk, the next
// scope begins with none.
void Arena::merge_chunks() {
  if (chunks_.size() < 2) return;
  const int64_t bytes = reserved();
  chunks_.clear();
  try {
    add_chunk(bytes);
  } catch (const std::exception&) {
    chunks_.clear();
  }
}

}  // namespace canzona

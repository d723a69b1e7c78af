#include <algorithm>
#include <cstring>

#include "canzona/linalg/cpu/stages/stages.h"
#include "canzona/linalg/memory.h"

namespace canzona {
namespace {

class CpuMemoryOps final : public MemoryOps {
 public:
  bool is_host() const override { return true; }
  std::byte* allocate(int64_t bytes) const override {
    return host_memory().allocate(bytes);
  }
  void release(std::byte* memory) const override {
    host_memory().release(memory);
  }

  void copy(std::byte* to, const std::byte* from,
            int64_t bytes) const override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
  }

  void add_fp32(float* sum, const float* a, const float* b,
                int64_t count) const override {
    cpu_add(sum, a, b, count);
  }

  void add_int64(int64_t* sum, const int64_t* a, const int64_t* b,
                 int64_t count) const override {
    for (int64_t i = 0; i < count; ++i)
      sum[i] = static_cast<int64_t>(static_cast<uint64_t>(a[i]) +
                                    static_cast<uint64_t>(b[i]));
  }

  void max_int64(int64_t* larger, const int64_t* a, const int64_t* b,
                 int64_t count) const override {
    for (int64_t i = 0; i < count; ++i) larger[i] = std::max(a[i], b[i]);
  }

  void add_int128(uint64_t* sum, const uint64_t* a, const uint64_t* b,
                  int64_t count) const override {
    for (int64_t i = 0; i < 2 * count; i += 2) {
      WideSum one{a[i], a[i + 1]};
      one.add({b[i], b[i + 1]});
      sum[i] = one.low;
      sum[i + 1] = one.high;
    }
  }

  void to_bf16(uint16_t* to, const float* from, int64_t count) const override {
    cpu_round_to_bf16(to, from, count);
  }

  void from_bf16(float* to, const uint16_t* from,
                 int64_t count) const override {
    cpu_widen_bf16(to, from, count);
  }
};

}  // namespace

const MemoryOps& cpu_memory_ops() {
  static const CpuMemoryOps ops;
  return ops;
}

}  // namespace canzona

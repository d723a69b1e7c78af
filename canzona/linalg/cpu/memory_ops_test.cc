#include "canzona/linalg/memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <new>

#include "canzona/base/error.h"
#include "canzona/linalg/test_memory_ops.h"

namespace canzona::linalg::cpu_memory_ops_test {
namespace {

// Computes element by element, by arithmetic.
class PlainMemoryOps final : public MemoryOps {
 public:
  bool is_host() const override { return true; }
  std::byte* allocate(int64_t bytes) const override {
    return static_cast<std::byte*>(
        ::operator new (static_cast<size_t>(bytes), std::align_val_t{64}));
  }
  void release(std::byte* memory) const override {
    ::operator delete (memory, std::align_val_t{64});
  }
  void copy(std::byte* to, const std::byte* from, int64_t n) const override {
    std::copy_n(from, n, to);
  }
  void add_fp32(float* sum, const float* a, const float* b,
                int64_t n) const override {
    for (int64_t i = 0; i < n; ++i)  // exact, then rounded once
      sum[i] = static_cast<float>(double{a[i]} + double{b[i]});
  }
  void add_int64(int64_t* sum, const int64_t* a, const int64_t* b,
                 int64_t n) const override {
    for (int64_t i = 0; i < n; ++i)
      sum[i] = std::bit_cast<int64_t>(std::bit_cast<uint64_t>(a[i]) +
                                      std::bit_cast<uint64_t>(b[i]));
  }
  void max_int64(int64_t* larger, const int64_t* a, const int64_t* b,
                 int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) larger[i] = a[i] < b[i] ? b[i] : a[i];
  }
  void to_bf16(uint16_t* to, const float* from, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i) to[i] = nearest(from[i]);
  }
  void from_bf16(float* to, const uint16_t* from, int64_t n) const override {
    for (int64_t i = 0; i < n; ++i)
      to[i] = std::bit_cast<float>(static_cast<uint32_t>(from[i]) << 16);
  }

 private:
  // Returns the nearer of the two neighbours, or in a tie the one whose last
  // bit is 0.
  static uint16_t nearest(float x) {
    const auto bits = std::bit_cast<uint32_t>(x);
    const auto below = static_cast<uint16_t>(bits >> 16);
    if (std::isnan(x)) return below | 0x40U;
    const uint32_t rest = bits & 0xffffU;
    const bool up = rest > 0x8000U || (rest == 0x8000U && (below & 1U) != 0);
    return static_cast<uint16_t>(below + (up ? 1 : 0));
  }
};

TEST(CpuMemoryOps, GiveTheBitsOfPlainArithmetic) {
  expect_same_bits(memory_ops("cpu"), PlainMemoryOps());
}

TEST(CpuMemoryOps, MayWriteWhereTheyRead) {
  const MemoryOps& ops = memory_ops("cpu");
  std::vector<float> sum = {1, 2, 3};
  ops.add_fp32(sum.data(), sum.data(), sum.data(), 3);
  EXPECT_THAT(sum, testing::ElementsAre(2, 4, 6));
  std::vector<int64_t> whole = {-1, int64_t{1} << 62};
  ops.add_int64(whole.data(), whole.data(), whole.data(), 2);
  EXPECT_THAT(whole,
              testing::ElementsAre(-2, std::numeric_limits<int64_t>::min()));
}

TEST(MemoryOps, RefuseADeviceTheyDoNotKnow) {
  EXPECT_THROW(memory_ops("cdua"), UsageError);
}

}  // namespace
}  // namespace canzona::linalg::cpu_memory_ops_test

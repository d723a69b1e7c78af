// For tests of MemoryOps on any device: passes the same numbers through the
// functions of two devices, at every offset.
//
//   expect_same_bits(memory_ops("cuda"), memory_ops("cpu"));
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "canzona/linalg/memory.h"

namespace canzona::linalg {

// Numbers in memory of a device.
template <class T>
class Placed {
 public:
  Placed(const MemoryOps& ops, const std::vector<T>& values)
      : ops_(ops), size_(values.size()), memory_(ops.allocate(num_bytes())) {
    ops_.copy(memory_, reinterpret_cast<const std::byte*>(values.data()),
              num_bytes());
  }
  ~Placed() { ops_.release(memory_); }
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;

  T* data() const { return reinterpret_cast<T*>(memory_); }
  std::vector<T> get() const {
    std::vector<T> values(size_);
    ops_.copy(reinterpret_cast<std::byte*>(values.data()), memory_,
              num_bytes());
    return values;
  }

 private:
  int64_t num_bytes() const { return static_cast<int64_t>(sizeof(T) * size_); }

  const MemoryOps& ops_;
  size_t size_;
  std::byte* memory_;
};

// Random bits under the mask.
template <class T>
std::vector<T> any_bits(int64_t count, uint32_t seed, T mask) {
  std::mt19937_64 random(seed);
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>(static_cast<T>(random()) & mask));
  return values;
}

// Returns what `work(ops, out, a, b)` leaves in `out`, with this many numbers
// each.
template <class Out, class In>
std::vector<Out> result_of(
    const MemoryOps& ops, const std::vector<Out>& out, const std::vector<In>& a,
    const std::vector<In>& b,
    const std::function<void(Out*, const In*, const In*)>& work) {
  const Placed<Out> to(ops, out);
  const Placed<In> first(ops, a), second(ops, b);
  work(to.data(), first.data(), second.data());
  return to.get();
}

template <class Out, class In>
void expect_same_work(
    const MemoryOps& ops, const MemoryOps& right, In mask,
    const std::function<void(const MemoryOps&, Out*, const In*, const In*,
                             int64_t)>& work) {
  for (const int64_t offset : {0, 1, 2, 3, 17, 63})
    for (const int64_t count : {0, 1, 3, 8, 1000, 100001}) {
      const auto size = 2 * (offset + count);
      const std::vector<Out> out(static_cast<size_t>(size), Out{1});
      const auto a = any_bits<In>(size, 1, mask);
      const auto b = any_bits<In>(size, 2, mask);
      const auto by = [&](const MemoryOps& device) {
        return result_of<Out, In>(
            device, out, a, b, [&](Out* to, const In* x, const In* y) {
              work(device, to + offset, x + offset, y + offset, count);
            });
      };
      EXPECT_EQ(by(ops), by(right)) << count << " from " << offset;
    }
}

template <class T>
const float* floats(const T* bits) {
  return reinterpret_cast<const float*>(bits);
}

// Floats are passed as bits, so that NaNs can be compared; sums have no NaNs.
inline void expect_same_bits(const MemoryOps& ops, const MemoryOps& right) {
  constexpr uint32_t kFinite = 0xbfffffffU;
  expect_same_work<uint32_t, uint32_t>(
      ops, right, kFinite,
      [](auto& o, uint32_t* to, auto* a, auto* b, int64_t n) {
        o.add_fp32(reinterpret_cast<float*>(to), floats(a), floats(b), n);
      });
  expect_same_work<int64_t, int64_t>(
      ops, right, -1, [](auto& o, int64_t* to, auto* a, auto* b, int64_t n) {
        o.add_int64(to, a, b, n);
      });
  expect_same_work<int64_t, int64_t>(
      ops, right, -1, [](auto& o, int64_t* to, auto* a, auto* b, int64_t n) {
        o.max_int64(to, a, b, n);
      });
  expect_same_work<uint16_t, uint32_t>(
      ops, right, ~0U, [](auto& o, uint16_t* to, auto* a, auto*, int64_t n) {
        o.to_bf16(to, floats(a), n);
      });
  expect_same_work<uint32_t, uint16_t>(
      ops, right, uint16_t{0xffff},
      [](auto& o, uint32_t* to, auto* a, auto*, int64_t n) {
        o.from_bf16(reinterpret_cast<float*>(to), a, n);
      });
}

}  // namespace canzona::linalg

// Identifies a sequence of calls: what was called, on which memory, with which
// shapes. Scalars are not part of it. Equal signatures mean equal work.
//
//   Signature s;
//   s.add("axpby");
//   s.add(matrices);
//   if (s == other) …
//
// It has 128 bits, mixed well enough that accidental collisions do not occur;
// it does not resist deliberate ones.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "canzona/linalg/engine.h"

namespace canzona {

class Signature {
 public:
  void add(std::string_view text);

  // The address counts, not the contents.
  template <class T>
  void add(T* pointer) {
    mix(reinterpret_cast<uintptr_t>(pointer));
  }
  template <class T>
  requires std::integral<T> || std::is_enum_v<T>
  void add(T value) { mix(static_cast<uint64_t>(value)); }
  void add(double value) { mix(std::bit_cast<uint64_t>(value)); }
  template <class Byte>
  void add(const BasicMatrices<Byte>& m) {
    add(m.data);
    mix(static_cast<uint64_t>(m.dtype) << 32 | (m.places != nullptr ? 1U : 0U));
    add(m.rows);
    add(m.cols);
    add(m.row_stride);
    add(m.count);
    add(m.matrix_stride);
    if (m.places != nullptr)
      for (int64_t i = 0; i < m.count; ++i) add(m.places[i]);
  }
  void add(ConstRun run) {
    add(run.data);
    add(run.dtype);
  }
  void add(ConstOrders orders) {
    add(orders.data);
    add(orders.length);
    add(orders.count);
  }
  // The contents count.
  void add_bytes(std::span<const std::byte> bytes);

  bool operator==(const Signature&) const = default;
  uint64_t low() const { return low_; }

 private:
  void mix(uint64_t word) {
    low_ = (low_ ^ word) * 0x9e3779b97f4a7c15ULL;
    low_ ^= low_ >> 32;
    high_ = (high_ + word) * 0xc2b2ae3d27d4eb4fULL;
    high_ ^= high_ >> 29;
  }

  uint64_t low_ = 0x243f6a8885a308d3ULL;
  uint64_t high_ = 0x13198a2e03707344ULL;
};

}  // namespace canzona

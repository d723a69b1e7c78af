// Sets how an engine multiplies while a rule is running, and restores `after`
// on exit, exceptions included.
//
//   const ProductsScope fast(engine, Products::kBf16x3);
//   { const ProductsScope plain(engine, Products::kPlain, Products::kBf16x3); }
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "canzona/base/check.h"
#include "canzona/linalg/engine.h"

namespace canzona::rules {

class ProductsScope {
 public:
  ProductsScope(Engine& engine, Products during,
                Products after = Products::kPlain)
      : engine_(engine), after_(after) {
    engine_.set_products(during);
  }
  ~ProductsScope() { engine_.set_products(after_); }
  ProductsScope(const ProductsScope&) = delete;
  ProductsScope& operator=(const ProductsScope&) = delete;

 private:
  Engine& engine_;
  Products after_;
};

inline Products products_of(bool splits) {
  return splits ? Products::kBf16x3 : Products::kPlain;
}
// For results that need full fp32 precision.
inline Products exact_products_of(bool splits) {
  return splits ? Products::kBf16x6 : Products::kPlain;
}

// Helpers for the tensors of a batch that a rule processes together: one value
// per tensor, and runs of adjacent tensors.
//
//   PerTensor<bool> found(count);
//   engine.finite(factors, found.span());
//   for_each_run(count, [&](int64_t i) { return found[i]; },
//                [&](int64_t begin, int64_t size) { … });
//
// Nothing here uses the heap, so at most kMostTogether tensors at a time.

inline constexpr int64_t kMostTogether = 256;

template <class T>
class PerTensor {
 public:
  explicit PerTensor(int64_t count, T value = {}) : count_(count) {
    CANZONA_CHECK(count >= 0 && count <= kMostTogether, count, " tensors");
    std::fill_n(values_.begin(), count, value);
  }
  T& operator[](int64_t i) { return values_[static_cast<size_t>(i)]; }
  const T& operator[](int64_t i) const {
    return values_[static_cast<size_t>(i)];
  }
  std::span<T> span() { return {values_.data(), static_cast<size_t>(count_)}; }
  std::span<T> span(int64_t begin, int64_t size) {
    return span().subspan(static_cast<size_t>(begin),
                          static_cast<size_t>(size));
  }

 private:
  int64_t count_;
  std::array<T, kMostTogether> values_;
};

// Calls work(begin, size) for each maximal run of chosen indices in [0, count).
template <class Chosen, class Work>
void for_each_run(int64_t count, const Chosen& chosen, const Work& work) {
  for (int64_t begin = 0; begin < count;) {
    if (!chosen(begin)) {
      ++begin;
      continue;
    }
    int64_t end = begin + 1;
    while (end < count && chosen(end)) ++end;
    work(begin, end - begin);
    begin = end;
  }
}

// Calls work(begin, size) for the parts of a batch that the engine takes at
// once.
template <class Work>
void for_each_part(const Engine& engine, int64_t count, const Work& work) {
  const int64_t most =
      std::clamp<int64_t>(engine.batch_width(), 1, kMostTogether);
  for (int64_t begin = 0; begin < count; begin += most)
    work(begin, std::min(most, count - begin));
}

}  // namespace canzona::rules

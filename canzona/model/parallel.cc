#include "canzona/model/parallel.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

// Maps numbers to integers of the same order: below 0, larger bits are smaller.
int64_t ordered_bits(float x) {
  int32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}
float from_ordered_bits(int64_t ordered) {
  const auto small = static_cast<int32_t>(ordered);
  const int32_t bits = small >= 0 ? small : small ^ 0x7fffffff;
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

}  // namespace

template <class Real>
TpGroup<Real>::TpGroup(Communicator* ranks) : ranks_(ranks) {
  if (std::is_same_v<Real, double> && size() > 1)
    throw UsageError(cat("decoder: tp=", size(),
                         " needs fp32: sums over ranks do not support fp64"));
}

template <class Real>
void TpGroup<Real>::reduce(Reduction reduction, void* data, int64_t bytes,
                           std::string_view label) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  ranks_->all_reduce(
      reduction,
      std::span(static_cast<std::byte*>(data), static_cast<size_t>(bytes)),
      {.label = label});
  seconds_ += std::chrono::duration<double>(Clock::now() - begin).count();
}

template <class Real>
void TpGroup<Real>::add(Real* data, int64_t count, std::string_view label) {
  if (size() == 1) return;
  reduce(Reduction::kFp32Sum, data, count * static_cast<int64_t>(sizeof(Real)),
         label);
}

template <class Real>
void TpGroup<Real>::largest(Real* data, int64_t count, int64_t* scratch,
                            std::string_view label) {
  if (size() == 1) return;
  for (int64_t i = 0; i < count; ++i)
    scratch[i] = ordered_bits(static_cast<float>(data[i]));
  reduce(Reduction::kInt64Max, scratch,
         count * static_cast<int64_t>(sizeof(int64_t)), label);
  for (int64_t i = 0; i < count; ++i) data[i] = from_ordered_bits(scratch[i]);
}

template class TpGroup<float>;
template class TpGroup<double>;

}  // namespace canzona

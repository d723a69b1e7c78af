// Vectors of 64 bytes in plain C++, for loops that are compiled for several
// instruction sets: the compiler makes of one what the CPU has. Sums over a row
// have as many partial sums as a vector has lanes, whatever the CPU, so that
// all give the same bits.
//
//   Lanes<Real> sum = {};
//   each_part<Real>(count, [&](int64_t i, auto part) CANZONA_INLINE {
//     const Lanes<Real> x = load(row + i, part);  // zeros beyond the end
//     sum += x * x;
//   });
//   total(sum);
//
// Everything has internal linkage and takes nothing from std that is a
// template, so that no copy compiled for a newer CPU can stand in for another.
#pragma once

#include <cstdint>
#include <cstring>

#define CANZONA_INLINE __attribute__((always_inline))

namespace canzona {
namespace {

template <class Real>
struct LanesOf {
  typedef Real Type __attribute__((vector_size(64)));
};
template <class Real>
using Lanes = typename LanesOf<Real>::Type;

template <class Real>
constexpr int64_t kLanes = 64 / static_cast<int64_t>(sizeof(Real));

// A whole vector, or the last elements of a row.
struct Whole {};
struct Some {
  int64_t count;
};

template <class Real>
CANZONA_INLINE inline Lanes<Real> load(const Real* from, Whole) {
  Lanes<Real> v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
template <class Real>
CANZONA_INLINE inline Lanes<Real> load(const Real* from, Some part) {
  Lanes<Real> v = {};
  for (int64_t i = 0; i < part.count; ++i) v[i] = from[i];
  return v;
}

template <class Real>
CANZONA_INLINE inline void store(Real* to, Lanes<Real> v, Whole) {
  std::memcpy(to, &v, sizeof v);
}
template <class Real>
CANZONA_INLINE inline void store(Real* to, Lanes<Real> v, Some part) {
  for (int64_t i = 0; i < part.count; ++i) to[i] = v[i];
}

template <class Real, class Work>
CANZONA_INLINE inline void each_part(int64_t count, const Work& work) {
  int64_t i = 0;
  for (; i + kLanes<Real> <= count; i += kLanes<Real>) work(i, Whole{});
  if (i < count) work(i, Some{count - i});
}

// Halves are added to each other until one number is left.
template <class Real>
CANZONA_INLINE inline Real total(Lanes<Real> v) {
  Real sums[kLanes<Real>];
  std::memcpy(sums, &v, sizeof v);
  for (int64_t half = kLanes<Real> / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

template <class Real>
CANZONA_INLINE inline Real largest(Lanes<Real> v) {
  Real most = v[0];
  for (int64_t i = 1; i < kLanes<Real>; ++i) most = v[i] > most ? v[i] : most;
  return most;
}

template <class Real>
CANZONA_INLINE inline Lanes<Real> broadcast(Real x) {
  return Lanes<Real>{} + x;
}

}  // namespace
}  // namespace canzona

// Packets of 64 bytes in plain C++, for loops that are compiled for several
// instruction sets: a packet is one, two or four vectors of the CPU. Sums over
// a row have one partial sum per element of a packet, whatever the CPU, so that
// all give the same bits.
//
//   Packet<Real> sum = {};
//   each_part<Real>(count, [&](int64_t i, auto part) CANZONA_INLINE {
//     const Packet<Real> x = load(row + i, part);  // zeros beyond the end
//     sum += x * x;
//   });
//   total(sum);
//
// Everything has internal linkage and uses no templates of std, so that the
// linker cannot substitute a copy compiled for a newer CPU.
#pragma once

#include <cstdint>
#include <cstring>

#define CANZONA_INLINE __attribute__((always_inline))

namespace canzona::model {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kVectors = 64 / kVectorBytes;

namespace {

template <class Real>
struct VectorOf {
  typedef Real Type __attribute__((vector_size(kVectorBytes)));
};
template <class Real>
using Vector = typename VectorOf<Real>::Type;

template <class Real>
constexpr int64_t kPacketSize = 64 / static_cast<int64_t>(sizeof(Real));

template <class Real>
struct Packet {
  Vector<Real> v[kVectors];
};

template <class Real>
CANZONA_INLINE inline Packet<Real> broadcast(Real x) {
  Packet<Real> all;
  for (int k = 0; k < kVectors; ++k) all.v[k] = Vector<Real>{} + x;
  return all;
}

// Applies `work` to each vector separately.
template <class Real, class Work>
CANZONA_INLINE inline Packet<Real> map(Packet<Real> a, const Work& work) {
  for (int k = 0; k < kVectors; ++k) a.v[k] = work(a.v[k]);
  return a;
}
template <class Real, class Work>
CANZONA_INLINE inline Packet<Real> map(Packet<Real> a, const Packet<Real>& b,
                                       const Work& work) {
  for (int k = 0; k < kVectors; ++k) a.v[k] = work(a.v[k], b.v[k]);
  return a;
}

#define CANZONA_LANES_OPERATOR(op)                                         \
  template <class Real>                                                    \
  CANZONA_INLINE inline Packet<Real> operator op(Packet<Real> a,           \
                                                 const Packet<Real>& b) {  \
    for (int k = 0; k < kVectors; ++k) a.v[k] = a.v[k] op b.v[k];          \
    return a;                                                              \
  }                                                                        \
  template <class Real>                                                    \
  CANZONA_INLINE inline Packet<Real> operator op(Packet<Real> a, Real b) { \
    for (int k = 0; k < kVectors; ++k) a.v[k] = a.v[k] op b;               \
    return a;                                                              \
  }
CANZONA_LANES_OPERATOR(+)
CANZONA_LANES_OPERATOR(-)
CANZONA_LANES_OPERATOR(*)
CANZONA_LANES_OPERATOR(/)
#undef CANZONA_LANES_OPERATOR

template <class Real>
CANZONA_INLINE inline void operator+=(Packet<Real>& a, const Packet<Real>& b) {
  a = a + b;
}
template <class Real>
CANZONA_INLINE inline Packet<Real> operator-(Packet<Real> a) {
  for (int k = 0; k < kVectors; ++k) a.v[k] = -a.v[k];
  return a;
}

// A whole vector, or the last elements of a row.
struct Whole {};
struct Some {
  int64_t count;
};

template <class Real>
CANZONA_INLINE inline Packet<Real> load(const Real* from, Whole) {
  Packet<Real> all;
  for (int k = 0; k < kVectors; ++k)
    std::memcpy(&all.v[k], from + k * (kPacketSize<Real> / kVectors),
                kVectorBytes);
  return all;
}
template <class Real>
CANZONA_INLINE inline Packet<Real> load(const Real* from, Some part) {
  Real padded[kPacketSize<Real>] = {};
  for (int64_t i = 0; i < part.count; ++i) padded[i] = from[i];
  return load(static_cast<const Real*>(padded), Whole{});
}

template <class Real>
CANZONA_INLINE inline void store(Real* to, const Packet<Real>& all, Whole) {
  for (int k = 0; k < kVectors; ++k)
    std::memcpy(to + k * (kPacketSize<Real> / kVectors), &all.v[k],
                kVectorBytes);
}
template <class Real>
CANZONA_INLINE inline void store(Real* to, const Packet<Real>& all, Some part) {
  Real padded[kPacketSize<Real>];
  store(padded, all, Whole{});
  for (int64_t i = 0; i < part.count; ++i) to[i] = padded[i];
}

template <class Real, class Work>
CANZONA_INLINE inline void each_part(int64_t count, const Work& work) {
  int64_t i = 0;
  for (; i + kPacketSize<Real> <= count; i += kPacketSize<Real>)
    work(i, Whole{});
  if (i < count) work(i, Some{count - i});
}

// Adds halves to each other until one number is left.
template <class Real>
CANZONA_INLINE inline Real total(const Packet<Real>& all) {
  Real sums[kPacketSize<Real>];
  store(sums, all, Whole{});
  for (int64_t half = kPacketSize<Real> / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  return sums[0];
}

template <class Real>
CANZONA_INLINE inline Packet<Real> larger(const Packet<Real>& a,
                                          const Packet<Real>& b) {
  return map(a, b, [](Vector<Real> x, Vector<Real> y) CANZONA_INLINE {
    return y > x ? y : x;
  });
}

template <class Real>
CANZONA_INLINE inline Real largest(const Packet<Real>& all) {
  Real most[kPacketSize<Real>];
  store(most, all, Whole{});
  for (int64_t i = 1; i < kPacketSize<Real>; ++i)
    most[0] = most[i] > most[0] ? most[i] : most[0];
  return most[0];
}

// Computes e^x of many numbers at once (fp32), or of each by the library
// (fp64).
//
// fp32: x = n·ln 2 + r with |r| <= ln 2 / 2, and e^r by its series up to r^7,
// whose remainder is below 6e-9; the relative error is below 2e-7. Below -87.3,
// where fp32 has no normal numbers, the result is 0; above 88.3 it is the value
// there. NaN stays NaN.

CANZONA_INLINE inline Vector<float> exp_series(Vector<float> r) {
  Vector<float> p = r * (1.0F / 5040) + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  return ((p * r) * r + r) + 1.0F;
}

CANZONA_INLINE inline Vector<float> exp_vector(Vector<float> given) {
  typedef int32_t Integers __attribute__((vector_size(kVectorBytes)));
  constexpr float kLeast = -87.3F;
  constexpr float kMost = 88.3F;
  constexpr float kRound = 0x1.8p23F;  // adding it rounds to an integer
  const Vector<float> zero = {};
  Vector<float> x = given < kLeast ? zero + kLeast : given;
  x = x > kMost ? zero + kMost : x;
  const Vector<float> shifted = x * 0x1.715476p0F + kRound;
  const Vector<float> n = shifted - kRound;
  // ln 2 in two parts: n times the first is exact.
  const Vector<float> r = (x - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  Integers power;
  std::memcpy(&power, &shifted, sizeof power);
  power = (power - 0x4b400000 + 127) << 23;
  Vector<float> scale;
  std::memcpy(&scale, &power, sizeof scale);
  const Vector<float> result = exp_series(r) * scale;
  return given < kLeast ? zero : result;
}

CANZONA_INLINE inline Vector<double> exp_vector(Vector<double> x) {
  for (int64_t i = 0; i < kPacketSize<double> / kVectors; ++i)
    x[i] = ::exp(x[i]);
  return x;
}

template <class Real>
CANZONA_INLINE inline Packet<Real> exp_packet(const Packet<Real>& x) {
  return map(x, [](Vector<Real> v) CANZONA_INLINE { return exp_vector(v); });
}

}  // namespace

}  // namespace canzona::model

// Loops of RMSNorm (table.h), and of heads that are normed and rotated.
#pragma once

#include <cmath>
#include <cstdint>

#include "canzona/model/ops/lanes.h"
#include "canzona/model/ops/table.h"

namespace canzona {
namespace {

template <class Real>
void add_kernel(Real* sum, const Real* x, const Real* y, int64_t count) {
  each_part<Real>(count, [&](int64_t i, auto part) CANZONA_INLINE {
    store<Real>(sum + i, load(x + i, part) + load(y + i, part), part);
  });
}

template <class Real>
CANZONA_INLINE inline Real inverse_root(Lanes<Real> squares, int64_t count,
                                        Real epsilon) {
  const Real mean = total<Real>(squares) / static_cast<Real>(count);
  return 1 / static_cast<Real>(::sqrt(static_cast<double>(mean + epsilon)));
}

template <class Real>
CANZONA_INLINE inline void scale_row(Real* out, const Real* x,
                                     const Real* weight, Real factor,
                                     int64_t cols) {
  each_part<Real>(cols, [&](int64_t i, auto part) CANZONA_INLINE {
    store<Real>(out + i, load(x + i, part) * factor * load(weight + i, part),
                part);
  });
}

template <class Real>
void norm_kernel(Real* out, const Real* x, const Real* weight, int64_t rows,
                 int64_t cols, Real epsilon) {
  for (int64_t row = 0; row < rows; ++row, x += cols, out += cols) {
    Lanes<Real> squares = {};
    each_part<Real>(cols, [&](int64_t i, auto part) CANZONA_INLINE {
      const Lanes<Real> v = load(x + i, part);
      squares += v * v;
    });
    scale_row(out, x, weight, inverse_root<Real>(squares, cols, epsilon), cols);
  }
}

template <class Real>
void add_norm_kernel(Real* out, Real* sum, const Real* x, const Real* y,
                     const Real* weight, int64_t rows, int64_t cols,
                     Real epsilon) {
  for (int64_t row = 0; row < rows; ++row) {
    Lanes<Real> squares = {};
    each_part<Real>(cols, [&](int64_t i, auto part) CANZONA_INLINE {
      const Lanes<Real> v = load(x + i, part) + load(y + i, part);
      store<Real>(sum + i, v, part);
      squares += v * v;
    });
    scale_row(out, sum, weight, inverse_root<Real>(squares, cols, epsilon),
              cols);
    x += cols, y += cols, sum += cols, out += cols;
  }
}

// With r = 1/sqrt(mean(x²) + epsilon) and g = gradient·weight:
// r·g - x·r³·mean(g·x). x_gradient may be x itself unless it is added to.
template <class Real, bool kAdd>
CANZONA_INLINE inline void norm_row_backward(Real* x_gradient,
                                             Real* weight_gradient,
                                             const Real* x, const Real* weight,
                                             const Real* gradient, int64_t cols,
                                             Real epsilon) {
  Lanes<Real> squares = {};
  Lanes<Real> dots = {};
  each_part<Real>(cols, [&](int64_t i, auto part) CANZONA_INLINE {
    const Lanes<Real> v = load(x + i, part);
    squares += v * v;
    dots += load(gradient + i, part) * load(weight + i, part) * v;
  });
  const Real r = inverse_root<Real>(squares, cols, epsilon);
  const Real k = r * r * r * (total<Real>(dots) / static_cast<Real>(cols));
  each_part<Real>(cols, [&](int64_t i, auto part) CANZONA_INLINE {
    const Lanes<Real> v = load(x + i, part);
    const Lanes<Real> g = load(gradient + i, part) * r;
    Lanes<Real> result = g * load(weight + i, part) - v * k;
    if constexpr (kAdd) result += load(x_gradient + i, part);
    store<Real>(x_gradient + i, result, part);
    store<Real>(weight_gradient + i, load(weight_gradient + i, part) + g * v,
                part);
  });
}

template <class Real>
void norm_backward_kernel(Real* x_gradient, Real* weight_gradient,
                          const Real* x, const Real* weight,
                          const Real* gradient, int64_t rows, int64_t cols,
                          Real epsilon) {
  for (int64_t row = 0; row < rows; ++row) {
    norm_row_backward<Real, true>(x_gradient, weight_gradient, x, weight,
                                  gradient, cols, epsilon);
    x += cols, x_gradient += cols, gradient += cols;
  }
}

// Pairs (i, i + head_dim / 2) turn by the token's angle of i.
template <class Real>
CANZONA_INLINE inline void turn_head(const TurnedHeads<Real>& h,
                                     const Real* raw, Real* out, int64_t t) {
  const int64_t half = h.head_dim / 2;
  const Real* cosines = h.cosines + t * half;
  const Real* sines = h.sines + t * half;
  Lanes<Real> squares = {};
  each_part<Real>(h.head_dim, [&](int64_t i, auto part) CANZONA_INLINE {
    const Lanes<Real> v = load(raw + i, part);
    squares += v * v;
  });
  const Real r = inverse_root<Real>(squares, h.head_dim, h.epsilon);
  each_part<Real>(half, [&](int64_t i, auto part) CANZONA_INLINE {
    const Lanes<Real> a = load(raw + i, part) * r * load(h.weight + i, part);
    const Lanes<Real> b =
        load(raw + half + i, part) * r * load(h.weight + half + i, part);
    const Lanes<Real> c = load(cosines + i, part);
    const Lanes<Real> s = load(sines + i, part);
    store<Real>(out + i, a * c - b * s, part);
    store<Real>(out + half + i, b * c + a * s, part);
  });
}

template <class Real>
void turn_kernel(const TurnedHeads<Real>& given) {
  const TurnedHeads<Real> h = given;
  for (int64_t t = 0; t < h.tokens; ++t)
    for (int64_t head = 0; head < h.heads; ++head)
      turn_head(h, h.raw + t * h.raw_stride + head * h.head_dim,
                h.turned + (t * h.heads + head) * h.head_dim, t);
}

template <class Real>
CANZONA_INLINE inline void turn_back(Real* gradient, const Real* cosines,
                                     const Real* sines, int64_t half) {
  each_part<Real>(half, [&](int64_t i, auto part) CANZONA_INLINE {
    const Lanes<Real> a = load(gradient + i, part);
    const Lanes<Real> b = load(gradient + half + i, part);
    const Lanes<Real> c = load(cosines + i, part);
    const Lanes<Real> s = load(sines + i, part);
    store<Real>(gradient + i, a * c + b * s, part);
    store<Real>(gradient + half + i, b * c - a * s, part);
  });
}

template <class Real>
void turn_backward_kernel(const TurnedHeads<Real>& given) {
  const TurnedHeads<Real> h = given;
  const int64_t half = h.head_dim / 2;
  for (int64_t t = 0; t < h.tokens; ++t) {
    for (int64_t head = 0; head < h.heads; ++head) {
      Real* raw = h.raw + t * h.raw_stride + head * h.head_dim;
      Real* gradient = h.turned + (t * h.heads + head) * h.head_dim;
      turn_back(gradient, h.cosines + t * half, h.sines + t * half, half);
      norm_row_backward<Real, false>(raw, h.weight_gradient, raw, h.weight,
                                     gradient, h.head_dim, h.epsilon);
    }
  }
}

}  // namespace
}  // namespace canzona

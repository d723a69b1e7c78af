// All loops of table.h. Included once per instruction set by a file that names
// its table.
#pragma once

#include <cmath>
#include <cstdint>

#include "canzona/model/ops/packet.h"
#include "canzona/model/ops/table.h"

namespace canzona::model {
namespace {

// Loops of RMSNorm (table.h), and of heads that are normed and rotated.

template <class Real>
void add_kernel(Real* sum, const Real* x, const Real* y, int64_t count) {
  each_part<Real>(count, [&](int64_t i, auto part) CANZONA_INLINE {
    store<Real>(sum + i, load(x + i, part) + load(y + i, part), part);
  });
}

template <class Real>
CANZONA_INLINE inline Real inverse_root(Packet<Real> squares, int64_t count,
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
    Packet<Real> squares = {};
    each_part<Real>(cols, [&](int64_t i, auto part) CANZONA_INLINE {
      const Packet<Real> v = load(x + i, part);
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
    Packet<Real> squares = {};
    each_part<Real>(cols, [&](int64_t i, auto part) CANZONA_INLINE {
      const Packet<Real> v = load(x + i, part) + load(y + i, part);
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
  Packet<Real> squares = {};
  Packet<Real> dots = {};
  each_part<Real>(cols, [&](int64_t i, auto part) CANZONA_INLINE {
    const Packet<Real> v = load(x + i, part);
    squares += v * v;
    dots += load(gradient + i, part) * load(weight + i, part) * v;
  });
  const Real r = inverse_root<Real>(squares, cols, epsilon);
  const Real k = r * r * r * (total<Real>(dots) / static_cast<Real>(cols));
  each_part<Real>(cols, [&](int64_t i, auto part) CANZONA_INLINE {
    const Packet<Real> v = load(x + i, part);
    const Packet<Real> g = load(gradient + i, part) * r;
    Packet<Real> result = g * load(weight + i, part) - v * k;
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

// Rotates pairs (i, i + head_dim / 2) by the token's angle i.
template <class Real>
CANZONA_INLINE inline void turn_head(const TurnedHeads<Real>& h,
                                     const Real* raw, Real* out, int64_t t) {
  const int64_t half = h.head_dim / 2;
  const Real* cosines = h.cosines + t * half;
  const Real* sines = h.sines + t * half;
  Packet<Real> squares = {};
  each_part<Real>(h.head_dim, [&](int64_t i, auto part) CANZONA_INLINE {
    const Packet<Real> v = load(raw + i, part);
    squares += v * v;
  });
  const Real r = inverse_root<Real>(squares, h.head_dim, h.epsilon);
  each_part<Real>(half, [&](int64_t i, auto part) CANZONA_INLINE {
    const Packet<Real> a = load(raw + i, part) * r * load(h.weight + i, part);
    const Packet<Real> b =
        load(raw + half + i, part) * r * load(h.weight + half + i, part);
    const Packet<Real> c = load(cosines + i, part);
    const Packet<Real> s = load(sines + i, part);
    store<Real>(out + i, a * c - b * s, part);
    store<Real>(out + half + i, b * c + a * s, part);
  });
}

// The same for a head that is not normed.
template <class Real>
CANZONA_INLINE inline void turn_plain_head(const TurnedHeads<Real>& h,
                                           const Real* raw, Real* out,
                                           int64_t t) {
  const int64_t half = h.head_dim / 2;
  const Real* cosines = h.cosines + t * half;
  const Real* sines = h.sines + t * half;
  each_part<Real>(half, [&](int64_t i, auto part) CANZONA_INLINE {
    const Packet<Real> a = load(raw + i, part);
    const Packet<Real> b = load(raw + half + i, part);
    const Packet<Real> c = load(cosines + i, part);
    const Packet<Real> s = load(sines + i, part);
    store<Real>(out + i, a * c - b * s, part);
    store<Real>(out + half + i, b * c + a * s, part);
  });
}

template <class Real>
void turn_kernel(const TurnedHeads<Real>& given) {
  const TurnedHeads<Real> h = given;
  for (int64_t t = 0; t < h.tokens; ++t) {
    for (int64_t head = 0; head < h.heads; ++head) {
      const Real* raw = h.raw + t * h.raw_stride + head * h.head_dim;
      Real* out = h.turned + (t * h.heads + head) * h.head_dim;
      if (h.weight != nullptr)
        turn_head(h, raw, out, t);
      else
        turn_plain_head(h, raw, out, t);
    }
  }
}

template <class Real>
CANZONA_INLINE inline void turn_back(Real* gradient, const Real* cosines,
                                     const Real* sines, int64_t half) {
  each_part<Real>(half, [&](int64_t i, auto part) CANZONA_INLINE {
    const Packet<Real> a = load(gradient + i, part);
    const Packet<Real> b = load(gradient + half + i, part);
    const Packet<Real> c = load(cosines + i, part);
    const Packet<Real> s = load(sines + i, part);
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
      if (h.weight != nullptr)
        norm_row_backward<Real, false>(raw, h.weight_gradient, raw, h.weight,
                                       gradient, h.head_dim, h.epsilon);
      else
        for (int64_t i = 0; i < h.head_dim; ++i) raw[i] = gradient[i];
    }
  }
}

// Loops of the softmax inside blocked attention (table.h).

template <class Real>
CANZONA_INLINE inline int64_t visible_keys(const ScoreBlock<Real>& block,
                                           int64_t row) {
  const int64_t seen = block.visible + row / block.heads;
  return seen < block.cols ? seen : block.cols;
}

template <class Real>
CANZONA_INLINE inline Real row_maximum(const Real* row, int64_t count) {
  Packet<Real> most = broadcast<Real>(row[0]);
  int64_t i = 0;
  for (; i + kPacketSize<Real> <= count; i += kPacketSize<Real>)
    most = larger(most, load(row + i, Whole{}));
  Real result = largest<Real>(most);
  for (; i < count; ++i) result = row[i] > result ? row[i] : result;
  return result;
}

// Computes row = exp(scale·row - shift) for the first `count` and returns their
// sum. The last vector reaches beyond the end; its values there are exp(-shift)
// and are neither stored nor added.
template <class Real>
CANZONA_INLINE inline Real row_exponentials(Real* row, int64_t count,
                                            Real scale, Real shift) {
  Packet<Real> sum = {};
  int64_t i = 0;
  for (; i + kPacketSize<Real> <= count; i += kPacketSize<Real>) {
    const Packet<Real> e = exp_packet(load(row + i, Whole{}) * scale - shift);
    store<Real>(row + i, e, Whole{});
    sum += e;
  }
  if (i < count) {
    const Some rest{count - i};
    store<Real>(row + i, exp_packet(load(row + i, rest) * scale - shift), rest);
    sum += load(row + i, rest);
  }
  return total<Real>(sum);
}

template <class Real>
CANZONA_INLINE inline void scale_all(Real* row, Real factor, int64_t count) {
  each_part<Real>(count, [&](int64_t i, auto part) CANZONA_INLINE {
    store<Real>(row + i, load(row + i, part) * factor, part);
  });
}

template <class Real>
void soften_kernel(const ScoreBlock<Real>& given, Real* largests, Real* sums,
                   Real* out, int64_t head_dim) {
  const ScoreBlock<Real> block = given;
  for (int64_t i = 0; i < block.rows; ++i) {
    Real* row = block.scores + i * block.cols;
    const int64_t seen = visible_keys(block, i);
    const Real most = row_maximum(row, seen) * block.scale;
    if (out == nullptr) {
      largests[i] = most;
      sums[i] = row_exponentials(row, seen, block.scale, most);
    } else {
      const Real now = most > largests[i] ? most : largests[i];
      const Real keep = static_cast<Real>(
          ::exp(static_cast<double>(largests[i]) - static_cast<double>(now)));
      largests[i] = now;
      sums[i] = sums[i] * keep + row_exponentials(row, seen, block.scale, now);
      if (keep != 1) scale_all(out + i * head_dim, keep, head_dim);
    }
    for (int64_t j = seen; j < block.cols; ++j) row[j] = 0;
  }
}

template <class Real>
void soften_backward_kernel(const ScoreBlock<Real>& given, Real* gradients,
                            const Real* log_sums, const Real* deltas) {
  const ScoreBlock<Real> block = given;
  for (int64_t i = 0; i < block.rows; ++i) {
    Real* row = block.scores + i * block.cols;
    Real* gradient = gradients + i * block.cols;
    const int64_t seen = visible_keys(block, i);
    const Real shift = log_sums[i];
    const Real delta = deltas[i];
    each_part<Real>(seen, [&](int64_t j, auto part) CANZONA_INLINE {
      const Packet<Real> p =
          exp_packet(load(row + j, part) * block.scale - shift);
      store<Real>(row + j, p, part);
      store<Real>(gradient + j,
                  p * (load(gradient + j, part) - delta) * block.scale, part);
    });
    for (int64_t j = seen; j < block.cols; ++j) row[j] = gradient[j] = 0;
  }
}

template <class Real>
void finish_heads_kernel(Real* out, int64_t stride, Real* log_sums,
                         int64_t log_stride, const Real* accumulated,
                         const Real* largests, const Real* sums, int64_t tokens,
                         int64_t heads, int64_t head_dim) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t row = t * heads + h;
      const Real factor = 1 / sums[row];
      const Real* from = accumulated + row * head_dim;
      Real* to = out + t * stride + h * head_dim;
      each_part<Real>(head_dim, [&](int64_t i, auto part) CANZONA_INLINE {
        store<Real>(to + i, load(from + i, part) * factor, part);
      });
      log_sums[t * log_stride + h] =
          largests[row] +
          static_cast<Real>(::log(static_cast<double>(sums[row])));
    }
  }
}

template <class Real>
void gather_heads_kernel(Real* dense, Real* deltas, const Real* gradient,
                         const Real* out, int64_t stride, int64_t tokens,
                         int64_t heads, int64_t head_dim) {
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t row = t * heads + h;
      const int64_t from = t * stride + h * head_dim;
      Packet<Real> dots = {};
      each_part<Real>(head_dim, [&](int64_t i, auto part) CANZONA_INLINE {
        const Packet<Real> g = load(gradient + from + i, part);
        store<Real>(dense + row * head_dim + i, g, part);
        dots += g * load(out + from + i, part);
      });
      deltas[row] = total<Real>(dots);
    }
  }
}

// Loops of SwiGLU (table.h).

template <class Real>
CANZONA_INLINE inline Packet<Real> sigmoid(Packet<Real> x) {
  return broadcast(Real{1}) / (exp_packet(-x) + Real{1});
}

template <class Real>
void swiglu_kernel(Real* act, const Real* gate_up, int64_t rows, int64_t ffn) {
  for (int64_t row = 0; row < rows; ++row, act += ffn, gate_up += 2 * ffn) {
    each_part<Real>(ffn, [&](int64_t i, auto part) CANZONA_INLINE {
      const Packet<Real> gate = load(gate_up + i, part);
      const Packet<Real> up = load(gate_up + ffn + i, part);
      store<Real>(act + i, gate * sigmoid<Real>(gate) * up, part);
    });
  }
}

// silu = gate·s; its derivative is s + silu·(1 - s).
template <class Real>
void swiglu_backward_kernel(Real* act, Real* gate_up, int64_t rows,
                            int64_t ffn) {
  for (int64_t row = 0; row < rows; ++row, act += ffn, gate_up += 2 * ffn) {
    each_part<Real>(ffn, [&](int64_t i, auto part) CANZONA_INLINE {
      const Packet<Real> gate = load(gate_up + i, part);
      const Packet<Real> up = load(gate_up + ffn + i, part);
      const Packet<Real> gradient = load(act + i, part);
      const Packet<Real> s = sigmoid<Real>(gate);
      const Packet<Real> silu = gate * s;
      store<Real>(act + i, silu * up, part);
      store<Real>(gate_up + i,
                  gradient * up * (s + silu * (broadcast(Real{1}) - s)), part);
      store<Real>(gate_up + ffn + i, gradient * silu, part);
    });
  }
}

// Loops of the cross entropy (table.h).

template <class Real>
void row_largest_kernel(Real* largests, const Real* logits, int64_t rows,
                        int64_t cols) {
  for (int64_t row = 0; row < rows; ++row)
    largests[row] = row_maximum(logits + row * cols, cols);
}

template <class Real>
void row_exponents_kernel(Real* logits, Real* sums, const Real* largests,
                          int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row)
    sums[row] =
        row_exponentials(logits + row * cols, cols, Real{1}, largests[row]);
}

template <class Real>
void row_shares_kernel(Real* logits, const Real* sums, Real factor,
                       int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row)
    scale_all(logits + row * cols, factor / sums[row], cols);
}

template <class Real>
constexpr Ops<Real> make_ops() {
  return {add_kernel<Real>,          norm_kernel<Real>,
          add_norm_kernel<Real>,     norm_backward_kernel<Real>,
          turn_kernel<Real>,         turn_backward_kernel<Real>,
          swiglu_kernel<Real>,       swiglu_backward_kernel<Real>,
          soften_kernel<Real>,       soften_backward_kernel<Real>,
          finish_heads_kernel<Real>, gather_heads_kernel<Real>,
          row_largest_kernel<Real>,  row_exponents_kernel<Real>,
          row_shares_kernel<Real>};
}

constexpr OpTable make_op_table(std::string_view name) {
  return {name, make_ops<float>(), make_ops<double>()};
}

}  // namespace

}  // namespace canzona::model

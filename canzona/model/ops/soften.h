// Loops of the softmax inside blocked attention (table.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "canzona/model/ops/exp.h"
#include "canzona/model/ops/lanes.h"
#include "canzona/model/ops/table.h"

namespace canzona {
namespace {

template <class Real>
CANZONA_INLINE inline int64_t visible_keys(const ScoreBlock<Real>& block,
                                           int64_t row) {
  const int64_t seen = block.visible + row / block.heads;
  return seen < block.cols ? seen : block.cols;
}

template <class Real>
CANZONA_INLINE inline Real row_maximum(const Real* row, int64_t count) {
  Lanes<Real> most = broadcast<Real>(row[0]);
  int64_t i = 0;
  for (; i + kLanes<Real> <= count; i += kLanes<Real>)
    most = larger(most, load(row + i, Whole{}));
  Real result = largest<Real>(most);
  for (; i < count; ++i) result = row[i] > result ? row[i] : result;
  return result;
}

// row = exp(scale·row - shift) for the first `count`; returns their sum. What a
// part has beyond the end is exp(-shift) and not stored, and not added.
template <class Real>
CANZONA_INLINE inline Real row_exponentials(Real* row, int64_t count,
                                            Real scale, Real shift) {
  Lanes<Real> sum = {};
  int64_t i = 0;
  for (; i + kLanes<Real> <= count; i += kLanes<Real>) {
    const Lanes<Real> e = exp_lanes(load(row + i, Whole{}) * scale - shift);
    store<Real>(row + i, e, Whole{});
    sum += e;
  }
  if (i < count) {
    const Some rest{count - i};
    store<Real>(row + i, exp_lanes(load(row + i, rest) * scale - shift), rest);
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
      const Lanes<Real> p =
          exp_lanes(load(row + j, part) * block.scale - shift);
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
      Lanes<Real> dots = {};
      each_part<Real>(head_dim, [&](int64_t i, auto part) CANZONA_INLINE {
        const Lanes<Real> g = load(gradient + from + i, part);
        store<Real>(dense + row * head_dim + i, g, part);
        dots += g * load(out + from + i, part);
      });
      deltas[row] = total<Real>(dots);
    }
  }
}

}  // namespace
}  // namespace canzona

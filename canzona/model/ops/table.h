// The decoder's loops over single elements: one set per instruction set, all
// of the same bits; the best that this CPU has is taken.
//
//   ops<float>().swiglu(act, gate_up, tokens, ffn);
//
// Rows are row-major. Any thread may call; nothing is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace canzona {

// One group of query heads of one sequence, or its key head: token t's heads
// lie at raw + t·raw_stride and, rotated, at turned + t·heads·head_dim. Without
// a weight they are rotated as they are.
template <class Real>
struct TurnedHeads {
  Real* raw = nullptr;  // written in backward alone
  int64_t raw_stride = 0;
  Real* turned = nullptr;
  const Real* weight = nullptr;     // of the norm; null: none
  Real* weight_gradient = nullptr;  // in backward alone
  const Real* cosines = nullptr;    // tokens x head_dim / 2
  const Real* sines = nullptr;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  Real epsilon = 0;
};

// Scores of a block of queries and a block of keys. Row i is of token i / heads
// of the block and sees the first min(cols, visible + i / heads) keys.
template <class Real>
struct ScoreBlock {
  Real* scores = nullptr;  // rows x cols
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t heads = 0;
  int64_t visible = 0;
  Real scale = 0;
};

template <class Real>
struct Ops {
  // sum = x + y.
  void (*add)(Real* sum, const Real* x, const Real* y, int64_t count);

  // out = x / sqrt(mean(x²) + epsilon) · weight, row by row.
  void (*norm)(Real* out, const Real* x, const Real* weight, int64_t rows,
               int64_t cols, Real epsilon);
  // The same of sum = x + y.
  void (*add_norm)(Real* out, Real* sum, const Real* x, const Real* y,
                   const Real* weight, int64_t rows, int64_t cols,
                   Real epsilon);
  // Adds to the gradients of x and of the weight.
  void (*norm_backward)(Real* x_gradient, Real* weight_gradient, const Real* x,
                        const Real* weight, const Real* out_gradient,
                        int64_t rows, int64_t cols, Real epsilon);

  // RMSNorm of each head, if there is a weight, then rotation by the token's
  // angles.
  void (*turn)(const TurnedHeads<Real>& heads);
  // `turned` holds the gradient, and `raw` becomes its own; the weight's, if
  // there is one, is added to. `turned` is lost.
  void (*turn_backward)(const TurnedHeads<Real>& heads);

  // act = gate·sigmoid(gate)·up; gate_up is rows x 2·ffn.
  void (*swiglu)(Real* act, const Real* gate_up, int64_t rows, int64_t ffn);
  // act: its gradient becomes the value; gate_up: becomes its gradient.
  void (*swiglu_backward)(Real* act, Real* gate_up, int64_t rows, int64_t ffn);

  // Scores become exp(scale·score - largest so far); `largest` and `sums` are
  // brought up to date and rows of `out` (rows x head_dim, null at the first
  // block) scaled to the new largest. Keys that a row does not see count 0.
  void (*soften)(const ScoreBlock<Real>& block, Real* largest, Real* sums,
                 Real* out, int64_t head_dim);
  // Scores become exp(scale·score - log_sum), and gradients of these become
  // those of the unscaled scores.
  void (*soften_backward)(const ScoreBlock<Real>& block, Real* gradients,
                          const Real* log_sums, const Real* deltas);
  // Heads of `tokens` tokens (at out + t·stride) = accumulated / sums;
  // log_sums (of stride heads_stride per token) = largest + log(sums).
  void (*finish_heads)(Real* out, int64_t stride, Real* log_sums,
                       int64_t log_stride, const Real* accumulated,
                       const Real* largest, const Real* sums, int64_t tokens,
                       int64_t heads, int64_t head_dim);
  // dense = heads of a gradient, row after row; deltas = sums of gradient·out.
  void (*gather_heads)(Real* dense, Real* deltas, const Real* gradient,
                       const Real* out, int64_t stride, int64_t tokens,
                       int64_t heads, int64_t head_dim);

  // Cross entropy in three steps, between which ranks may meet.
  void (*row_largest)(Real* largest, const Real* logits, int64_t rows,
                      int64_t cols);
  // Logits become exp(logit - largest).
  void (*row_exponents)(Real* logits, Real* sums, const Real* largest,
                        int64_t rows, int64_t cols);
  // Exponents become factor·exponent / sum.
  void (*row_shares)(Real* logits, const Real* sums, Real factor, int64_t rows,
                     int64_t cols);
};

struct OpTable {
  std::string_view name;
  Ops<float> fp32;
  Ops<double> fp64;
};

const OpTable& portable_ops();
const OpTable& avx2_ops();    // only on x86_64
const OpTable& avx512_ops();  // only on x86_64

// Those that this CPU may run, best first.
std::span<const OpTable* const> usable_ops();

template <class Real>
const Ops<Real>& ops();

}  // namespace canzona

// The decoder's element-wise loops: one set per instruction set, all with the
// same bits; the best one for this CPU is used.
//
//   ops<float>().swiglu(act, gate_up, tokens, ffn);
//
// Rows are row-major. Any thread may call; nothing is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace canzona::model {

// One group of query heads of one sequence, or its key head: token t's heads
// lie at raw + t·raw_stride and, rotated, at turned + t·heads·head_dim. Without
// a weight they are rotated without a norm.
template <class Real>
struct TurnedHeads {
  Real* raw = nullptr;  // written only in backward
  int64_t raw_stride = 0;
  Real* turned = nullptr;
  const Real* weight = nullptr;     // of the norm; null: none
  Real* weight_gradient = nullptr;  // only in backward
  const Real* cosines = nullptr;    // tokens x head_dim / 2
  const Real* sines = nullptr;
  int64_t tokens = 0;
  int64_t heads = 0;
  int64_t head_dim = 0;
  Real epsilon = 0;
};

// Scores of a block of queries and a block of keys. Row i belongs to token i /
// heads of the block and sees the first min(cols, visible + i / heads) keys.
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
  // The same for sum = x + y.
  void (*add_norm)(Real* out, Real* sum, const Real* x, const Real* y,
                   const Real* weight, int64_t rows, int64_t cols,
                   Real epsilon);
  // Adds to the gradients of x and of the weight.
  void (*norm_backward)(Real* x_gradient, Real* weight_gradient, const Real* x,
                        const Real* weight, const Real* out_gradient,
                        int64_t rows, int64_t cols, Real epsilon);

  // Applies RMSNorm to each head, if there is a weight, then rotates by the
  // token's angles.
  void (*turn)(const TurnedHeads<Real>& heads);
  // `turned` holds the gradient; `raw` is replaced by its gradient, and the
  // weight's, if there is one, is added to. `turned` is overwritten.
  void (*turn_backward)(const TurnedHeads<Real>& heads);

  // act = gate·sigmoid(gate)·up; gate_up is rows x 2·ffn.
  void (*swiglu)(Real* act, const Real* gate_up, int64_t rows, int64_t ffn);
  // Replaces act's gradient by its value, and gate_up by its gradient.
  void (*swiglu_backward)(Real* act, Real* gate_up, int64_t rows, int64_t ffn);

  // Replaces scores by exp(scale·score - largest so far), updates `largest` and
  // `sums`, and rescales rows of `out` (rows x head_dim, null at the first
  // block) to the new largest. Keys that a row does not see become 0.
  void (*soften)(const ScoreBlock<Real>& block, Real* largest, Real* sums,
                 Real* out, int64_t head_dim);
  // Replaces scores by exp(scale·score - log_sum), and their gradients by those
  // of the unscaled scores.
  void (*soften_backward)(const ScoreBlock<Real>& block, Real* gradients,
                          const Real* log_sums, const Real* deltas);
  // Heads of `tokens` tokens (at out + t·stride) = accumulated / sums;
  // log_sums (of stride heads_stride per token) = largest + log(sums).
  void (*finish_heads)(Real* out, int64_t stride, Real* log_sums,
                       int64_t log_stride, const Real* accumulated,
                       const Real* largest, const Real* sums, int64_t tokens,
                       int64_t heads, int64_t head_dim);
  // dense = heads of a gradient, row by row; deltas = sums of gradient·out.
  void (*gather_heads)(Real* dense, Real* deltas, const Real* gradient,
                       const Real* out, int64_t stride, int64_t tokens,
                       int64_t heads, int64_t head_dim);

  // Cross entropy in three steps, between which ranks may exchange results.
  void (*row_largest)(Real* largest, const Real* logits, int64_t rows,
                      int64_t cols);
  // Replaces logits by exp(logit - largest).
  void (*row_exponents)(Real* logits, Real* sums, const Real* largest,
                        int64_t rows, int64_t cols);
  // Replaces exponentials by factor·exponential / sum.
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

// Returns those that this CPU supports, best first.
std::span<const OpTable* const> usable_ops();

template <class Real>
const Ops<Real>& ops();

}  // namespace canzona::model

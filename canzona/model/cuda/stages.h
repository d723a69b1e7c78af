// The decoder's stages on a GPU, except products and attention: each launches
// kernels on the engine's stream. T is float, or uint16_t for bf16; arithmetic
// and gradients of weights are fp32. docs/model.md has the formulas.
//
// Every sum has a fixed order that depends on the shape alone. Nothing is
// allocated: sums of strips of rows go through `partial`, of partial_floats()
// numbers. Pointers are to the GPU's memory.
#pragma once

#include <cstdint>

#include "canzona/linalg/cuda/cuda_engine.h"

namespace canzona::model::gpu {

// Rows whose share of a gain's gradient one block adds up.
constexpr int64_t kStrip = 16;

inline int64_t num_strips(int64_t rows) { return (rows + kStrip - 1) / kStrip; }
inline int64_t partial_floats(int64_t rows, int64_t cols) {
  return num_strips(rows) * cols;
}

// RMSNorm of rows of `cols` numbers.
template <class T>
void norm(CudaEngine& engine, T* out, const T* x, const T* weight, int64_t rows,
          int64_t cols, float epsilon);

// Adds to the gradient of x (or, with `replaces`, sets it), and adds to that of
// the weight.
template <class T>
struct NormGradients {
  T* x = nullptr;
  float* weight = nullptr;
  float* partial = nullptr;
  bool replaces = false;
};
template <class T>
void norm_backward(CudaEngine& engine, const NormGradients<T>& gradients,
                   const T* x, const T* weight, const T* out_gradient,
                   int64_t rows, int64_t cols, float epsilon);

// Adds to each of `cols` sums its column of `partial`, whose rows are `stride`
// apart.
void add_columns(CudaEngine& engine, float* sums, const float* partial,
                 int64_t rows, int64_t cols, int64_t stride);

// Queries and keys of every token. A row of qkv has, group by group, the
// group's queries, its key and its value; a row of `turned` has all queries,
// then all keys.
template <class T>
struct Heads {
  int64_t tokens = 0;
  int64_t length = 0;  // of a sequence
  int64_t groups = 0;
  int64_t per_group = 0;
  int64_t head_dim = 0;
  float epsilon = 0;
  const float* cosines = nullptr;  // length x head_dim / 2
  const float* sines = nullptr;
  const T* query_norm = nullptr;  // null: neither is normed
  const T* key_norm = nullptr;

  int64_t queries() const { return groups * per_group; }
  int64_t turned_cols() const { return (queries() + groups) * head_dim; }
  int64_t qkv_cols() const { return groups * (per_group + 2) * head_dim; }
};

// Norms and rotates them.
template <class T>
void turn(CudaEngine& engine, T* turned, const T* qkv, const Heads<T>& heads);
// Sets the gradient of queries and keys in qkv_gradient, whose values are left
// alone, and adds to those of the norms; `partial` is for 2·head_dim columns.
template <class T>
void turn_back(CudaEngine& engine, T* qkv_gradient, const T* qkv,
               const T* turned_gradient, const Heads<T>& heads,
               float* query_norm_gradient, float* key_norm_gradient,
               float* partial);

// A row of gate_up has a token's gate, then its up, `ffn` each.
template <class T>
void swiglu(CudaEngine& engine, T* out, const T* gate_up, int64_t rows,
            int64_t ffn);
// Replaces out's gradient by `out`, and gate_up by its gradient.
template <class T>
void swiglu_backward(CudaEngine& engine, T* out, T* gate_up, int64_t rows,
                     int64_t ffn);

// Row t of x is the table's row of token t.
template <class T>
void embed(CudaEngine& engine, T* x, const T* table, const int32_t* tokens,
           int64_t rows, int64_t cols);
// Adds the rows of `gradient` to those of the table, token by token: `places`
// are the tokens' numbers, sorted by row and number; the k-th different token
// is rows[k], its places begin at begins[k] and end at begins[k + 1].
struct SortedTokens {
  const int32_t* places = nullptr;
  const int32_t* rows = nullptr;
  const int32_t* begins = nullptr;
  int64_t count = 0;
};
template <class T>
void embed_backward(CudaEngine& engine, float* table, const T* gradient,
                    const SortedTokens& tokens, int64_t cols);

// Sets each row's loss, the log-sum of its logits less that of its target, and
// replaces the logits by the loss's gradient times `share`; not if it is 0.
// Rows are `stride` apart; what lies beyond the vocabulary becomes 0.
template <class T>
void losses(CudaEngine& engine, float* loss, T* logits, const int32_t* targets,
            int64_t rows, int64_t vocab, int64_t stride, float share);
// *mean = Σ loss / count, by a tree; 0 for no numbers.
void mean(CudaEngine& engine, double* mean, const float* loss, int64_t count);

}  // namespace canzona::model::gpu

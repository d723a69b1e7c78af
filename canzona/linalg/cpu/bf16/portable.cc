// The kernel for any CPU, and the reference for the others.
#include <algorithm>
#include <bit>
#include <utility>

#include "canzona/linalg/cpu/bf16/kernel.h"

namespace canzona::linalg {
namespace {

float widen(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

Bf16 round_to_bf16(float value) {
  return bf16_of_bits(std::bit_cast<uint32_t>(value));
}

// Returns the index of element (r, c) of a block.
int64_t transposed_index(int r, int c) {
  return r / kTile * kTileElements + c / 2 * kBlock + r % kTile * 2 + c % 2;
}
int64_t pairs_index(int r, int c) { return transposed_index(c, r); }

void nothing() {}

void add_block_product(float* acc, const Bf16* left, const Bf16* right) {
  float b[kBlock][kBlock];
  for (int k = 0; k < kBlock; ++k)
    for (int c = 0; c < kBlock; ++c) b[k][c] = widen(right[pairs_index(k, c)]);
  for (int r = 0; r < kBlock; ++r) {
    float* to = acc + static_cast<int64_t>(r) * kBlock;
    for (int k = 0; k < kBlock; ++k) {
      const float a = widen(left[r * kBlock + k]);
      for (int c = 0; c < kBlock; ++c) to[c] += a * b[k][c];
    }
  }
}

void scale_and_add(const Epilogue& e) {
  for (int r = 0; r < kBlock; ++r)
    for (int c = 0; c < kBlock; ++c) {
      float& v = e.acc[r * kBlock + c];
      v *= e.alpha;
      for (int n = 0; n < e.num_addends; ++n)
        v += e.weight[n] * widen(e.addend[n][pairs_index(r, c)]);
    }
}

void transpose_values(float* values) {
  for (int r = 0; r < kBlock; ++r)
    for (int c = 0; c < r; ++c)
      std::swap(values[r * kBlock + c], values[c * kBlock + r]);
}

void store_plain(const Epilogue& e) {
  const auto [before, step, after] = e.coefficients;
  for (int r = 0; r < e.height; ++r) {
    float* out = e.out + r * e.stride;
    const float* o = e.acc + static_cast<int64_t>(r) * kBlock;
    for (int c = 0; c < e.width; ++c)
      out[c] = e.apply ? (out[c] * before - step * o[c]) * after : o[c];
  }
}

void write_formats(const PackedBlock& to, const Bf16* rows) {
  for (int r = 0; r < kBlock; ++r)
    for (int c = 0; c < kBlock; ++c) {
      const Bf16 value = rows[r * kBlock + c];
      to.rows[r * kBlock + c] = value;
      to.transposed[transposed_index(r, c)] = value;
      to.pairs[pairs_index(r, c)] = value;
    }
}

void add_sums(const Epilogue& e) {
  for (int p = e.from_sum; p > e.to_sum; --p) {
    const float* right = e.acc + p * e.sum_stride;
    float* left = e.acc + (p - 1) * e.sum_stride;
    for (int64_t i = 0; i < kBlockElements; ++i) left[i] += right[i];
  }
}

void finish(const Epilogue& e) {
  add_sums(e);
  if (e.target == Target::kNothing) return;
  if (e.transpose) transpose_values(e.acc);
  scale_and_add(e);
  if (e.target == Target::kPlain) return store_plain(e);
  Bf16 rows[kBlockElements];
  std::transform(e.acc, e.acc + kBlockElements, rows, round_to_bf16);
  if (e.target == Target::kDiagonal)
    for (int r = 0; r < kBlock; ++r)
      for (int c = 0; c < r; ++c) rows[c * kBlock + r] = rows[r * kBlock + c];
  write_formats({e.rows, e.transposed, e.pairs}, rows);
  if (e.mirror == nullptr) return;
  for (int r = 0; r < kBlock; ++r)
    for (int c = 0; c < kBlock; ++c)
      e.mirror[c * kBlock + r] = rows[r * kBlock + c];
}

void multiply(const BlockProduct& p, const Epilogue* previous) {
  if (previous != nullptr) finish(*previous);
  if (!p.resume) std::fill_n(p.acc, kBlockElements, 0.0F);
  for (int64_t n = 0; n < p.depth; ++n) {
    const int64_t k = (p.backward ? p.depth - 1 - n : n) * kBlockElements;
    add_block_product(p.acc, p.left + k, p.right + k);
  }
}

void read(float* values, const SourcePiece& piece) {
  std::fill_n(values, kBlockElements, 0.0F);
  for (int r = 0; r < piece.height; ++r) {
    const float* source = piece.source + r * piece.source_stride;
    float* to = values + static_cast<int64_t>(r) * kBlock;
    for (int c = 0; c < piece.width; ++c) {
      const float g = source[c];
      float u = g;
      if (piece.momentum != nullptr) {
        float& b = piece.momentum[r * piece.momentum_stride + c];
        b = piece.keep * b + piece.add * g;
        u = piece.from_grad * g + piece.from_momentum * b;
      }
      to[c] = u * piece.prescale;
    }
  }
}

double sum_of_squares(const Bf16* rows) {
  double columns[kBlock] = {};
  for (int r = 0; r < kBlock; ++r)
    for (int c = 0; c < kBlock; ++c) {
      const double value = widen(rows[r * kBlock + c]);
      columns[c] += value * value;
    }
  for (int c = 0; c < 8; ++c)
    columns[c] =
        (columns[c] + columns[c + 8]) + (columns[c + 16] + columns[c + 24]);
  for (int half = 4; half > 0; half /= 2)
    for (int c = 0; c < half; ++c) columns[c] += columns[c + half];
  return columns[0];
}

double pack(const PackedBlock& to, float* values, bool transpose) {
  if (transpose) transpose_values(values);
  Bf16 rows[kBlockElements];
  std::transform(values, values + kBlockElements, rows, round_to_bf16);
  write_formats(to, rows);
  return sum_of_squares(rows);
}

}  // namespace

const BlockKernel& portable_kernel() {
  static constexpr BlockKernel kernel{nothing, nothing, multiply,      finish,
                                      read,    pack,    sum_of_squares};
  return kernel;
}

}  // namespace canzona::linalg

// For the tests of this folder: dense fp64 matrices, and the contents of an
// operand in each of its formats, decoded without the code under test.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include "canzona/linalg/cpu/cpu_algebra.h"
#include "canzona/linalg/memory.h"
#include "canzona/linalg/operand.h"

namespace canzona::linalg {

struct Dense {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<double> values;

  Dense() = default;
  Dense(int64_t r, int64_t c)
      : rows(r), cols(c), values(static_cast<size_t>(r * c)) {}
  double& operator()(int64_t i, int64_t j) {
    return values[static_cast<size_t>(i * cols + j)];
  }
  double operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * cols + j)];
  }
};

template <class Element>
Dense make_dense(int64_t rows, int64_t cols, const Element& element) {
  Dense d(rows, cols);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) d(i, j) = element(i, j);
  return d;
}

inline Dense transpose(const Dense& a) {
  return make_dense(a.cols, a.rows,
                    [&](int64_t i, int64_t j) { return a(j, i); });
}

inline Dense product(const Dense& a, const Dense& b) {
  Dense c(a.rows, b.cols);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t k = 0; k < a.cols; ++k)
      for (int64_t j = 0; j < b.cols; ++j) c(i, j) += a(i, k) * b(k, j);
  return c;
}

inline Dense absolute(Dense a) {
  for (double& v : a.values) v = std::abs(v);
  return a;
}

// scale·a + identity·I
inline Dense affine(double scale, Dense a, double identity) {
  for (double& v : a.values) v *= scale;
  for (int64_t i = 0; i < std::min(a.rows, a.cols); ++i) a(i, i) += identity;
  return a;
}

inline double frobenius(const Dense& a) {
  double sum = 0;
  for (double v : a.values) sum += v * v;
  return std::sqrt(sum);
}

// Row-major fp32 with a gap after each row, filled with a marker.
struct PlainRows {
  static constexpr float kMark = -77777.0F;

  int64_t rows, cols, stride;
  std::vector<float> values;

  PlainRows(int64_t r, int64_t c, int64_t gap = 0)
      : rows(r),
        cols(c),
        stride(c + gap),
        values(static_cast<size_t>(r * (c + gap)), kMark) {}
  float& operator()(int64_t i, int64_t j) {
    return values[static_cast<size_t>(i * stride + j)];
  }
  float operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * stride + j)];
  }
  Matrices view() {
    Matrices m = matrices(values.data(), rows, cols);
    m.row_stride = stride;
    return m;
  }
};

template <class Element>
PlainRows make_plain(int64_t rows, int64_t cols, int64_t gap,
                     const Element& element) {
  PlainRows p(rows, cols, gap);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      p(i, j) = static_cast<float>(element(i, j));
  return p;
}

inline PlainRows gaussian(int64_t rows, int64_t cols, unsigned seed,
                          int64_t gap = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  return make_plain(rows, cols, gap,
                    [&](int64_t, int64_t) { return normal(engine); });
}

inline PlainRows transposed(const PlainRows& from, int64_t gap = 0) {
  return make_plain(from.cols, from.rows, gap,
                    [&](int64_t i, int64_t j) { return from(j, i); });
}

inline std::vector<uint32_t> bits_of(const PlainRows& p) {
  std::vector<uint32_t> bits;
  for (float v : p.values) bits.push_back(std::bit_cast<uint32_t>(v));
  return bits;
}

// Reads the formats of an operand, each 32 x 32 block of which is 2 KB.
class StoredBlocks {
 public:
  StoredBlocks(const Operand& operand, int num_formats)
      : block_rows_((operand.rows + 31) / 32),
        block_cols_((operand.cols + 31) / 32),
        words_(static_cast<size_t>(num_formats * format_size())) {
    if (!words_.empty())
      std::memcpy(words_.data(), operand.storage, words_.size() * 2);
  }

  int64_t padded_rows() const { return 32 * block_rows_; }
  int64_t padded_cols() const { return 32 * block_cols_; }
  const std::vector<uint16_t>& words() const { return words_; }

  uint16_t in_rows(int64_t i, int64_t j) const {
    return at(0, (i / 32) * block_cols_ + j / 32, i % 32 * 32 + j % 32);
  }
  // The dword (j / 2 of its block) of row i, with row and column exchanged
  // within the 16 rows of a tile.
  uint16_t in_transposed(int64_t i, int64_t j) const {
    const int64_t tile = i % 32 / 16;
    return at(1, (i / 32) * block_cols_ + j / 32,
              tile * 512 + j % 32 / 2 * 32 + i % 16 * 2 + j % 2);
  }
  uint16_t in_pairs(int64_t i, int64_t j) const {
    const int64_t tile = j % 32 / 16;
    return at(2, (j / 32) * block_rows_ + i / 32,
              tile * 512 + i % 32 / 2 * 32 + j % 16 * 2 + i % 2);
  }

 private:
  int64_t format_size() const { return block_rows_ * block_cols_ * 1024; }
  uint16_t at(int64_t format, int64_t block, int64_t offset) const {
    return words_[static_cast<size_t>(format * format_size() + block * 1024 +
                                      offset)];
  }

  int64_t block_rows_;
  int64_t block_cols_;
  std::vector<uint16_t> words_;
};

inline double value_of(uint16_t word) {
  return std::bit_cast<float>(static_cast<uint32_t>(word) << 16);
}

// Returns the stored values, without scale and identity. Fails the test if the
// formats disagree or the padding is not zero.
inline Dense stored(const Operand& operand, int num_formats) {
  const StoredBlocks blocks(operand, num_formats);
  int64_t wrong_formats = 0;
  int64_t wrong_padding = 0;
  Dense d(operand.rows, operand.cols);
  for (int64_t i = 0; i < blocks.padded_rows(); ++i)
    for (int64_t j = 0; j < blocks.padded_cols(); ++j) {
      const uint16_t word = blocks.in_rows(i, j);
      wrong_formats += blocks.in_transposed(i, j) != word;
      if (num_formats > 2) wrong_formats += blocks.in_pairs(i, j) != word;
      if (i < operand.rows && j < operand.cols)
        d(i, j) = value_of(word);
      else
        wrong_padding += (word & 0x7fff) != 0;
    }
  EXPECT_EQ(wrong_formats, 0) << operand.rows << "x" << operand.cols;
  EXPECT_EQ(wrong_padding, 0) << operand.rows << "x" << operand.cols;
  return d;
}

inline Dense stored_wide(const Operand& x) { return stored(x, 3); }

// The same for a symmetric operand, which must be exactly symmetric.
inline Dense stored_symmetric(const Operand& r) {
  const Dense d = stored(r, 2);
  EXPECT_EQ(d.values, transpose(d).values) << r.rows;
  return d;
}

inline Dense meaning(const Operand& r) {
  return affine(r.scale, stored_symmetric(r), r.identity);
}

class Bf16Test : public testing::TestWithParam<Bf16Kernel> {
 protected:
  Bf16Test() : algebra_(make_bf16_algebra(GetParam())), scope_(arena_) {}

  Operand load(PlainRows source) {
    const bool tall = source.rows > source.cols;
    Operand x = tall ? algebra_->wide(arena_, source.cols, source.rows)
                     : algebra_->wide(arena_, source.rows, source.cols);
    algebra_->load(x, {.source = source.view(), .transpose = tall});
    return x;
  }

  std::unique_ptr<CpuAlgebra> algebra_;
  Arena arena_;
  Arena::Scope scope_;
};

inline std::string kernel_name(const testing::TestParamInfo<Bf16Kernel>& info) {
  return std::string(to_string(info.param));
}

inline const std::vector<int64_t>& sizes() {
  static const std::vector<int64_t> sizes = {0,  1,  2,  15, 16, 17,
                                             31, 32, 33, 64, 65, 100};
  return sizes;
}

}  // namespace canzona::linalg

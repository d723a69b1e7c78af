#include "canzona/linalg/cpu/bf16/operand_blocks.h"

#include "canzona/base/check.h"

namespace canzona {
namespace {

// Blocks begin with a page, so that none is spread over three.
constexpr int64_t kAlignment = 4096;
constexpr int64_t kBlockBytes =
    kBlockElements * static_cast<int64_t>(sizeof(Bf16));

std::byte* take_aligned(Arena& arena, int64_t bytes) {
  std::byte* memory = arena.take(bytes + kAlignment);
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const auto past = static_cast<int64_t>(address % kAlignment);
  return memory + (past == 0 ? 0 : kAlignment - past);
}

Operand make_operand(std::byte* storage, int64_t rows, int64_t cols) {
  Operand operand;
  operand.storage = storage;
  operand.rows = rows;
  operand.cols = cols;
  return operand;
}

Blocks blocks_of(const Operand& operand) {
  Blocks blocks;
  blocks.block_rows = num_blocks(operand.rows);
  blocks.block_cols = num_blocks(operand.cols);
  blocks.rows = reinterpret_cast<Bf16*>(operand.storage);
  blocks.transposed = blocks.rows + blocks.count() * kBlockElements;
  return blocks;
}

}  // namespace

Operand take_wide(Arena& arena, int64_t rows, int64_t cols) {
  CANZONA_CHECK(0 <= rows && rows <= cols, "wide operand ", rows, "x", cols);
  const int64_t blocks = num_blocks(rows) * num_blocks(cols);
  const int64_t sums = num_blocks(rows) * static_cast<int64_t>(sizeof(double));
  return make_operand(take_aligned(arena, 3 * blocks * kBlockBytes + sums),
                      rows, cols);
}

Operand take_symmetric(Arena& arena, int64_t rows) {
  CANZONA_CHECK(0 <= rows, "symmetric operand of ", rows, " rows");
  const int64_t blocks = num_blocks(rows) * num_blocks(rows);
  return make_operand(take_aligned(arena, 2 * blocks * kBlockBytes), rows,
                      rows);
}

Blocks wide_blocks(const Operand& x) {
  Blocks blocks = blocks_of(x);
  blocks.pairs = blocks.transposed + blocks.count() * kBlockElements;
  return blocks;
}

Blocks symmetric_blocks(const Operand& r) {
  CANZONA_CHECK_EQ(r.rows, r.cols, "symmetric operand");
  return blocks_of(r);
}

double* row_sums(const Operand& x) {
  const Blocks blocks = wide_blocks(x);
  return reinterpret_cast<double*>(blocks.pairs +
                                   blocks.count() * kBlockElements);
}

}  // namespace canzona

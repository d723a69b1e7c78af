// Strips of wide operands on a GPU (linalg/operand.h): the sums of their
// squares, the trees in which sums are added, and the triangles that members of
// a team exchange. All pointers are of the device; calls are asynchronous.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "canzona/linalg/cuda/algebra/algebra.h"

namespace canzona {

StripCuts cuts_of(const Operand& x);

// Where the strips of a source lie: rows x cols is the wide matrix, which is
// stored transposed if it is tall.
struct StripSource {
  StripCuts cuts;
  int64_t rows = 0;
  int64_t cols = 0;
  bool tall = false;
};

// Scratch of `count` matrices: one slot per row of a strip.
int64_t strip_slots(const StripSource& at, int64_t count);
// parts[matrix·strips + strip] of what the load will see, times the peak of its
// matrix if there are peaks. Changes no state.
template <class Real>
void launch_strip_parts(const BlendSource<Real>& source, const StripSource& at,
                        const double* peaks, double* slots, NormPart* parts,
                        cudaStream_t stream);
// One scale per matrix, from `strips` parts each, added by the tree.
void launch_strip_scales(const NormPart* parts, int strips, int64_t count,
                         const double* peaks, const ScaleRule& rule,
                         double* scales, cudaStream_t stream);

// Gram matrices of strips, those of the first matrix first: contiguous m x m,
// of which the lower triangle is read.
struct StripSums {
  const float* data = nullptr;
  int32_t strips = 1;
};
// D = the sum by the tree, rounded to 16 bits and mirrored; above the diagonal
// blocks of a folded D only where a kernel reads that (tile_product.h).
void launch_strip_tree(TileType type, const StripSums& sums, const Tiles& d,
                       cudaStream_t stream);
// The lower triangle of the sum, row by row, in fp32.
void launch_strip_triangle(const StripSums& sums, int64_t rows, float* triangle,
                           cudaStream_t stream);

// A triangle to 16 bits, element by element.
void launch_round_triangle(TileType type, const float* from, int64_t count,
                           std::byte* to, cudaStream_t stream);
// A symmetric matrix from its lower triangle, mirrored as above, and back, in
// numbers of any type but fp64.
void launch_take_triangle(DType dtype, const std::byte* triangle,
                          const Tiles& d, cudaStream_t stream);
void launch_put_triangle(DType dtype, const Tiles& d, std::byte* triangle,
                         cudaStream_t stream);

}  // namespace canzona

// Rectangles of matrices, where they are put together and packed in a slot.
#pragma once

#include "canzona/plan/schedule/rounds.h"
#include "canzona/rules/runs.h"

namespace canzona {

// A rectangle of a matrix with these sides.
inline Matrices in_matrix(Run matrix, const SlotRectangle& r,
                          const std::vector<int64_t>& dims) {
  Matrices view =
      as_matrices(advanced(matrix, r.first_row * dims[1] + r.first_col),
                  r.num_rows, r.num_cols);
  view.row_stride = dims[1];
  return view;
}

// The same one in a slot.
inline Matrices in_slot(float* slot, const SlotRectangle& r, int64_t field) {
  return matrices(slot + r.at + field * r.field_stride, r.num_rows, r.num_cols);
}

}  // namespace canzona

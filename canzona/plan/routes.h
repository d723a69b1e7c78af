// Which rectangle of which shard goes to which owner, and back.
//
//   for (const Route& r : routes_of(plan, matrix)) …
//
// A matrix's rows (row cut) or columns (column cut) are spread over the tp
// ranks of its home. Route pieces are runs of matrix rows and columns on one tp
// rank; the same list serves gather (shard → owner) and scatter (owner →
// shard). Of a tensor that tp does not cut every rank stores all: nothing is
// gathered, and the scatter sends the whole update.
#pragma once

#include <vector>

#include "canzona/plan/plan.h"

namespace canzona {

// A rectangle of the matrix that tp rank `t` stores.
struct Route {
  int32_t t = 0;
  int64_t first_row = 0;  // of the matrix
  int64_t num_rows = 0;
  int64_t first_col = 0;
  int64_t num_cols = 0;
  int64_t shard_row = 0;  // first row in the shard of the tensor on rank t
  friend bool operator==(const Route&, const Route&) = default;
};

std::vector<Route> routes_of(const Plan& plan, int32_t matrix);
std::vector<Route> routes_of(const Tensor& tensor, const Matrix& matrix,
                             int32_t tp);

// Elements of `matrix` on tp rank t, without listing the routes.
int64_t elements_on(const Plan& plan, int32_t matrix, int32_t t);

// The same for all tp ranks, [t].
std::vector<int64_t> elements_by_rank(const Plan& plan, int32_t matrix);

}  // namespace canzona

// Which rectangle of which shard goes to which owner, and back.
//
//   for (const Route& r : routes_of(plan, matrix)) …
//
// A matrix's rows (row cut) or columns (column cut) are spread over the tp
// ranks of its home, and the rows of each such shard over the places. A route
// is a rectangle of the matrix on one plane (mesh.h); the same list serves
// gather (shard → owner) and scatter (owner → shard). If tp does not cut a
// tensor, all tp ranks of a place store the same data: those with the owner's
// tp rank send, and the update goes to all.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/plan.h"

namespace canzona::plan {

// A rectangle of the matrix that plane `t` stores.
struct Route : Rectangle {
  int32_t t = 0;
  int64_t shard_row = 0;  // first row in the tp rank's shard, of all places
  friend bool operator==(const Route&, const Route&) = default;
};

std::vector<Route> routes_of(const PlanPart& plan, int32_t matrix);
std::vector<Route> routes_of(const Tensor& tensor, const Matrix& matrix,
                             const Mesh& grid);
// Appends the routes of plane `t` alone.
void append_routes(const PlanPart& plan, int32_t matrix, int32_t t,
                   std::vector<Route>& routes);
// Returns routes over tensor parallelism alone, without places.
std::vector<Route> routes_of(const Tensor& tensor, const Matrix& matrix,
                             int32_t tp);

// True if the matrices of a tensor are spread over several ranks of a home.
bool is_cut(const Mesh& grid, const Tensor& tensor);
// True if plane `t` sends its piece to plane `owner`, itself included.
bool sends_to(const Mesh& grid, const Tensor& tensor, int32_t t, int32_t owner);

// Returns the number of elements of `matrix` on plane t.
int64_t elements_on(const PlanPart& plan, int32_t matrix, int32_t t);

// The same for all planes, [t].
std::vector<int64_t> elements_by_rank(const PlanPart& plan, int32_t matrix);

}  // namespace canzona::plan

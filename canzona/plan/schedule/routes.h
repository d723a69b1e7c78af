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
#include "canzona/plan/schedule/team_schedule.h"

namespace canzona {

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

// Strip-by-strip exchange of the first and last round of a home, whose gather
// and scatter nothing hides. In a plan whose `exchange` is strips, the largest
// eligible matrix of every owner moves strip by strip (canzona/rules/strips.h),
// each strip in its own exchange. The first strip is then summed while the
// others are in transit, and updates leave while the rest is multiplied.
//
//   if (goes_by_strips(part, round, num_rounds))
//     StripExchange strips(part, teams, matrices_of_round);
//
// Derived from the plan alone; no memory is touched.

// True for the first and last round of a home in a plan that exchanges strips.
bool goes_by_strips(const PlanPart& part, int32_t round, int32_t num_rounds);

// A matrix of a round; `owners` as in a plan.
struct RoundMatrix {
  int32_t matrix = 0;
  std::span<const int32_t> owners = {};
  bool is_team = false;  // that shares its strips
};

class StripExchange {
 public:
  // Nothing moves by strips.
  StripExchange() = default;
  // `matrices` are those of the round and home. If a team shares a matrix of
  // the round, nothing moves by strips.
  StripExchange(const PlanPart& part, TeamTable& teams,
                std::span<const int32_t> matrices);
  // The same for owners that may differ from those of the part.
  StripExchange(const PlanPart& part, TeamCosts& costs,
                std::span<const RoundMatrix> matrices);

  // The number of exchanges, besides those of the round's other matrices.
  int32_t size() const { return size_; }
  // Returns the number of strips of a matrix; 0 if it moves as a whole.
  int32_t strips(int32_t matrix) const;
  // Returns the exchange that moves a strip of such a matrix. Every owner
  // begins with a different strip, the one that its own rank stores if strips
  // are cut like shards; otherwise all owners would wait for the same rank at
  // the same time.
  int32_t exchange_of(int32_t matrix, int32_t strip) const;

 private:
  struct Chosen {
    int32_t owner = 0, matrix = 0, strips = 0;
  };
  std::vector<Chosen> chosen_;
  int32_t size_ = 0;
  int32_t num_planes_ = 1;
};

// Returns the rectangle of one strip.
Rectangle strip_rectangle(const PlanPart& part, int32_t matrix, int32_t strips,
                          int32_t strip);

// True if some matrix of the plan could move by strips if it had a single
// owner.
bool may_exchange_strips(const Plan& plan);
// Says why not.
std::string why_no_strips(const Plan& plan);

}  // namespace canzona

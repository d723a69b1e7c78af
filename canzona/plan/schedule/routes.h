// Routes say which rectangle of which shard goes to which owner, and back.
//
//   for (const Route& r : routes_of(plan, matrix)) …
//
// A matrix's rows (row cut) or columns (column cut) are spread over the tp
// ranks of its home, and the rows of each such shard over the places. Route
// pieces are runs of matrix rows and columns on one plane (mesh.h); the same
// list serves gather (shard → owner) and scatter (owner → shard). If tp does
// not cut a tensor, every tp rank of a place stores the same: those that share
// the owner's tp rank send, and the update goes to all.
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
// Those of plane `t` alone, appended.
void append_routes(const PlanPart& plan, int32_t matrix, int32_t t,
                   std::vector<Route>& routes);
// Routes over tensor parallelism alone.
std::vector<Route> routes_of(const Tensor& tensor, const Matrix& matrix,
                             int32_t tp);

// True if the matrices of a tensor lie in pieces on several ranks of a home.
bool is_cut(const Mesh& grid, const Tensor& tensor);
// True if plane `t` sends its piece to plane `owner`, itself included.
bool sends_to(const Mesh& grid, const Tensor& tensor, int32_t t, int32_t owner);

// Elements of `matrix` on plane t.
int64_t elements_on(const PlanPart& plan, int32_t matrix, int32_t t);

// The same for all planes, [t].
std::vector<int64_t> elements_by_rank(const PlanPart& plan, int32_t matrix);

// Nothing hides the gather of a home's first round and the scatter of its last
// one. A plan whose `exchange` is strips cuts them: of every owner the largest
// matrix that may be goes strip by strip (canzona/rules/strips.h), each strip
// in an exchange of its own, so that the first one is summed while the others
// are on their way, and an update leaves while the rest is multiplied.
//
//   if (goes_by_strips(part, round, num_rounds))
//     StripExchange strips(part, teams, matrices_of_round);
//
// All that follows from the plan; no memory is touched.

// True of the first and the last round of a home in a plan that exchanges
// strips.
bool goes_by_strips(const PlanPart& part, int32_t round, int32_t num_rounds);

// A matrix of a round; `owners` as in a plan.
struct RoundMatrix {
  int32_t matrix = 0;
  std::span<const int32_t> owners = {};
  bool is_team = false;  // that shares its strips
};

class StripExchange {
 public:
  // Nothing goes by strips.
  StripExchange() = default;
  // `matrices` are those of the round, of the home. A round in which a team
  // shares a matrix has no matrix by strips.
  StripExchange(const PlanPart& part, TeamTable& teams,
                std::span<const int32_t> matrices);
  // The same of owners that need not be those of the part.
  StripExchange(const PlanPart& part, TeamCosts& costs,
                std::span<const RoundMatrix> matrices);

  // How many exchanges it takes, besides those of the round's other matrices.
  int32_t size() const { return size_; }
  // Strips of a matrix; 0: it goes as a whole.
  int32_t strips(int32_t matrix) const;
  // The exchange that a strip of such a matrix goes with. Every owner begins
  // with another strip, the one that lies on its own rank where strips are cut
  // as shards are: else all owners would wait for one rank after the other.
  int32_t exchange_of(int32_t matrix, int32_t strip) const;

 private:
  struct Chosen {
    int32_t owner = 0, matrix = 0, strips = 0;
  };
  std::vector<Chosen> chosen_;
  int32_t size_ = 0;
  int32_t num_planes_ = 1;
};

// Returns the elements of each strip.
Rectangle strip_rectangle(const PlanPart& part, int32_t matrix, int32_t strips,
                          int32_t strip);

// True if some matrix of the plan could go by strips, were its owner alone.
bool may_exchange_strips(const Plan& plan);

}  // namespace canzona

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
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "canzona/plan/plan.h"
#include "canzona/plan/schedule/team_table.h"

namespace canzona {

// True of the first and the last round of a home in a plan that exchanges
// strips.
bool goes_by_strips(const PlanPart& part, int32_t round, int32_t num_rounds);

class StripExchange {
 public:
  // Nothing goes by strips.
  StripExchange() = default;
  // `matrices` are those of the round, of the home. A round in which a team
  // shares a matrix has no matrix by strips.
  StripExchange(const PlanPart& part, TeamTable& teams,
                std::span<const int32_t> matrices);

  // How many exchanges it takes, besides those of the round's other matrices.
  int32_t size() const { return size_; }
  // Strips of a matrix; 0: it goes as a whole.
  int32_t strips(int32_t matrix) const;
  // The exchange that strip `strip` of a matrix with so many goes with.
  int32_t exchange_of(int32_t strip, int32_t strips) const {
    return strip * size_ / strips;
  }

 private:
  struct Chosen {
    int32_t owner = 0, matrix = 0, strips = 0;
  };
  std::vector<Chosen> chosen_;
  int32_t size_ = 0;
};

// Returns the elements of each strip.
Rectangle strip_rectangle(const PlanPart& part, int32_t matrix, int32_t strips,
                          int32_t strip);

// True if some matrix of the plan could go by strips.
bool may_exchange_strips(const Plan& plan);

}  // namespace canzona

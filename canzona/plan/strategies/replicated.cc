#include "canzona/plan/strategies/replicated.h"

#include <algorithm>

namespace canzona {

void assign_replicated(const Problem&, Assignment& a) {
  std::fill(a.home.begin(), a.home.end(), kEveryHome);
  std::fill(a.owner.begin(), a.owner.end(), kEveryTpRank);
}

}  // namespace canzona

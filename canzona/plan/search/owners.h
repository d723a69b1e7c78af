// Owners inside one home: its matrices dealt to the tp ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/search/bundles.h"
#include "canzona/plan/strategy.h"

namespace canzona {

// Items that are alike, together: the classes that bundles are made of, and the
// items of each.
class AlikeItems {
 public:
  // `kinds[i]` describes item i; its count is not looked at.
  explicit AlikeItems(const std::vector<ItemClass>& kinds);

  const std::vector<ItemClass>& classes() const { return classes_; }
  // The rank of each item, if ranks get as many of each class as `bundles`
  // says: later items to lower ranks.
  std::vector<int32_t> ranks(const Bundles& bundles) const;

 private:
  std::vector<ItemClass> classes_;
  std::vector<std::vector<size_t>> members_;  // by class
};

// Sets a.owner of `matrices`, all of one home, so that the largest load over tp
// is small.
void deal_owners(const Problem& p, std::span<const int32_t> matrices,
                 Assignment& a);

// Owners of blocks: where a rule's matrices fall apart (RuleFacts::block), the
// ranks of a home own blocks of a matrix, with the states of these, so that a
// long matrix is no longer what one rank has to do alone (docs/algorithms.md).

// Changes owners and rounds of homes that would be the slowest, with homes as
// they are. Nothing changes where matrices do not fall apart, or it would not
// pay.
void own_blocks(const PlanPart& part, const Problem& p, Assignment& a);

}  // namespace canzona

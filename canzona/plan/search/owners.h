// Owners inside one home: deals its matrices to the tp ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "canzona/plan/layout/problem.h"
#include "canzona/plan/search/bundles.h"

namespace canzona::plan {

// Groups items that are alike into the classes that bundles are made of.
class AlikeItems {
 public:
  // `kinds[i]` describes item i; its count is ignored.
  explicit AlikeItems(const std::vector<ItemClass>& kinds);

  const std::vector<ItemClass>& classes() const { return classes_; }
  // Returns the rank of each item if ranks get as many items of each class as
  // `bundles` says; later items go to lower ranks.
  std::vector<int32_t> ranks(const Bundles& bundles) const;

 private:
  std::vector<ItemClass> classes_;
  std::vector<std::vector<size_t>> members_;  // by class
};

// Sets a.owner of `matrices`, all of one home, so that the largest load over tp
// is small.
void deal_owners(const Problem& p, std::span<const int32_t> matrices,
                 Assignment& a);

// Assigns owners to blocks: if a rule's matrices consist of independent blocks
// (RuleFacts::block), several ranks of a home own blocks of a matrix, with
// their states, so that a large matrix need not be the work of one rank
// (docs/algorithms.md).

// Changes owners and rounds in the homes that would be the slowest; the homes
// of tensors stay. Does nothing if matrices have no blocks or if it would not
// pay.
void own_blocks(const PlanPart& part, const Problem& p, Assignment& a);

}  // namespace canzona::plan

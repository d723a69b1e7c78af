#include "canzona/plan/placed/placed_owners.h"

#include <algorithm>
#include <numeric>

#include "canzona/base/index.h"

namespace canzona {
namespace {

// Indices of `sizes`, the largest first.
std::vector<size_t> largest_first(const std::vector<int64_t>& sizes) {
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  return order;
}

// Longest processing time first; of equally loaded ranks the one that stores
// most of the matrix.
void deal_matrices(const PlacedBasis& basis, PlacedPlan& plan) {
  std::vector<int64_t> weights;
  for (size_t m = 0; m < plan.matrices.size(); ++m)
    weights.push_back(basis.work_of(m));
  std::vector<int64_t> loads(index(plan.world), 0);
  for (const size_t m : largest_first(weights)) {
    const Holder* best = nullptr;
    for (const Holder& holder : basis.holders()[m]) {
      const auto key = [&](const Holder& h) {
        return std::pair(loads[index(h.rank)], -h.elements);
      };
      if (!best || key(holder) < key(*best)) best = &holder;
    }
    plan.matrices[m].owner = best->rank;
    loads[index(best->rank)] += weights[m];
  }
}

int64_t elements_of(const PlacedTensor& tensor) {
  return Box{{}, tensor.shape}.elements();
}

void deal_elements(PlacedPlan& plan) {
  std::vector<std::vector<int64_t>> kept;  // by class and line
  for (const PlacedClass& c : plan.classes)
    kept.emplace_back(c.lines.size(), 0);
  std::vector<int64_t> sizes;
  for (const PlacedElements& e : plan.elements)
    sizes.push_back(elements_of(plan.tensors[index(e.tensor)]));
  for (const size_t i : largest_first(sizes)) {
    PlacedElements& e = plan.elements[i];
    auto& lines = kept[index(plan.class_of[index(e.tensor)])];
    const auto least = std::min_element(lines.begin(), lines.end());
    e.line = static_cast<int32_t>(least - lines.begin());
    *least += sizes[i];
  }
}

}  // namespace

void decide_owners(const PlacedBasis& basis, PlacedPlan& plan) {
  deal_matrices(basis, plan);
  deal_elements(plan);
}

Ticks placed_bound(const PlacedBasis& basis, const PlacedPlan& plan, Ticks) {
  const auto& steps = basis.kinds().steps();
  int64_t bound = 0;
  for (size_t k = 0; k < steps.size(); ++k) {
    int64_t sum = 0, largest = 0;
    for (const PlacedMatrix& m : plan.matrices) {
      const int64_t load = basis.kinds().load(
          m.cost, plan.tensors[index(m.tensor)].group, m.phase)[k];
      sum += load;
      largest = std::max(largest, load);
    }
    const int64_t mean = sum / plan.world + (sum % plan.world != 0);
    bound += steps[k] * std::max(mean, largest);
  }
  return Ticks(bound);
}

}  // namespace canzona

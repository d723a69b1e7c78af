#include "canzona/rules/factor_layout.h"

#include <utility>

#include "canzona/base/check.h"

namespace canzona {

FactorLayout::FactorLayout(const Blocking& blocking, const States& states)
    : blocking_(blocking),
      states_per_kind_(states.states_per_kind),
      end_state_(states.first_state) {
  first_state_.fill(-1);
  for (int axis = 0; axis < blocking_.order(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    if (!states.axes[at]) continue;
    ++num_factors_;
    first_state_[at] = end_state_;
    end_state_ += states_per_kind_ *
                  static_cast<int>(blocking_.side(axis).kinds().size());
  }
}

int64_t FactorLayout::num_counters() const {
  return checked_mul(blocking_.num_blocks(), num_factors_, "factors");
}

FactorPlace FactorLayout::place(const TensorBlock& block, int axis) const {
  CANZONA_CHECK(has_factor(axis), "axis ", axis);
  const StackPlace at = blocking_.stack_place(block, axis);
  FactorPlace found;
  found.first_state = first_state_[static_cast<size_t>(axis)] +
                      states_per_kind_ * static_cast<int>(at.kind);
  found.place = at.place;
  found.stack = at.stack;
  found.side = block.sizes[axis];
  found.failures = block.number * num_factors_;
  for (int before = 0; before < axis; ++before)
    if (has_factor(before)) ++found.failures;
  return found;
}

StateFact owned_state(std::string name, std::vector<int64_t> shape,
                      Initially initially) {
  return {std::move(name), std::move(shape), "fp32", Lives::kWithOwner,
          initially};
}

}  // namespace canzona

#include "canzona/rules/shampoo/facts.h"

#include <algorithm>
#include <bit>

#include "canzona/rules/counting.h"

namespace canzona {
namespace {

// Products to raise a matrix to a power by squaring and multiplying.
int64_t products_of_power(int64_t p) {
  const auto bits = static_cast<uint64_t>(p);
  return std::bit_width(bits) - 1 + std::popcount(bits) - 1;
}

// Flops of an inverse root of a d x d matrix, in units of d³. Products of
// polynomials of one symmetric matrix cost one triangle, d³.
int64_t root_work(const RootOptions& root, InversePower power) {
  // Tridiagonal form, its eigenvectors and their back transformation take
  // about 9 d³, and the root is put together as a triangle.
  if (root.method == RootMethod::kEigen || root.method == RootMethod::kPseudo)
    return 9 + 1;
  // Ten steps: Z is the identity at first, Y of no use at last, and P, all but
  // the first, a product and not a triangle.
  if (root.method == RootMethod::kCans) return 9 * 2 + 9 + 9;
  // A condition number of 1e5 or 1e6 needs this many, however many are allowed.
  constexpr int64_t kUsualIterations = 18;
  const int64_t iterations = std::min(root.max_iterations, kUsualIterations);
  const int64_t raise = products_of_power(power.p);
  if (root.method == RootMethod::kNewton) return iterations * (raise + 2);
  return iterations * (raise + root.order) + raise + 1 +
         products_of_power(power.q);
}

// Without factors, a step is one of Adam: so many per element. Beside factors
// that is nothing.
constexpr int64_t kElementwise = 14;

// Along an axis of length a, over blocks of a x rest elements: statistics
// a²·rest (a triangle), the root applied 2a²·rest, and once more for each other
// axis with a KL factor.
RuleWork tensor_work(const ShampooOptions& options,
                     const ShampooLayout& layout) {
  RuleWork work;
  const Blocking& blocking = layout.blocking();
  if (blocking.empty()) return work;
  if (layout.num_factors() == 0) {
    work.every_step = Flops(kElementwise) * blocking.sizes()[0] *
                      blocking.elements_across(0).value();
    return work;
  }
  const int64_t per_step =
      3 + (options.kl ? 2 * (layout.num_factors() - 1) : 0);
  for (int axis = 0; axis < blocking.order(); ++axis) {
    if (!layout.has_factor(axis)) continue;
    const BlockedSide& side = blocking.side(axis);
    work.every_step += per_step * side.sum_of_squares() *
                       blocking.elements_across(axis).value();
    work.refresh +=
        root_work(options.root, options.power(blocking.order(), axis)) *
        side.sum_of_cubes() * blocking.blocks_across(axis);
  }
  return work;
}

std::array<int64_t, 2> sides_of(MatrixShape shape) {
  return {shape.rows, shape.cols};
}

}  // namespace

std::vector<StateFact> ShampooFacts::states(MatrixShape shape) const {
  return states_for("shampoo", shape, [&] {
    return ShampooLayout(options_, sides_of(shape)).states(sides_of(shape));
  });
}

std::vector<StateFact> ShampooFacts::tensor_states(
    const std::vector<int64_t>& dims) const {
  return ShampooLayout(options_, dims).states(dims);
}

RuleWork ShampooFacts::work(MatrixShape shape) const {
  return count_for("shampoo", shape, [&] {
    return tensor_work(options_, ShampooLayout(options_, sides_of(shape)));
  });
}

MatrixShape ShampooFacts::block(MatrixShape shape) const {
  const auto factors_of = [&](MatrixShape sides) {
    return ShampooLayout(options_, sides_of(sides)).factors();
  };
  return count_for("shampoo", shape,
                   [&] { return independent_block(shape, factors_of); });
}

std::vector<BlockState> ShampooFacts::block_states(MatrixShape shape,
                                                   int64_t number) const {
  const ShampooLayout layout(options_, sides_of(shape));
  return states_of_block(layout.factors(), number, layout.refresh_failures(),
                         layout.states(sides_of(shape)));
}

std::string ShampooFacts::algorithm(MatrixShape shape) const {
  if (ShampooLayout(options_, sides_of(shape)).num_factors() == 0)
    return "elementwise";
  return word_option(options_.in_force, "root");
}

RuleEntry shampoo_entry() {
  return {"shampoo", "inverse roots of the row and column statistics",
          shampoo_option_facts(), shampoo_presets(), make_facts<ShampooFacts>};
}

}  // namespace canzona

#include "canzona/rules/shampoo/facts.h"

#include <algorithm>

#include "canzona/rules/counting.h"
#include "canzona/rules/shampoo/blocks.h"

namespace canzona {
namespace {

constexpr const char* kMaxDim = "max_preconditioner_dim";
constexpr const char* kRootIterations = "root_iterations";

std::vector<OptionFact> make_option_facts() {
  std::vector<OptionFact> facts = refresh_option_facts("10");
  facts.push_back({kMaxDim, "1024", "1..1000000",
                   "a longer side is cut into blocks of this length"});
  facts.push_back({kRootIterations, "18", "1..100",
                   "coupled Newton iterations of a refresh"});
  return facts;
}

const std::vector<OptionFact>& option_facts() {
  static const std::vector<OptionFact> facts = make_option_facts();
  return facts;
}

bool is_vector(MatrixShape shape) { return shape.rows == 1 || shape.cols == 1; }

// Triangles of the products of one coupled Newton iteration (d³ each) for an
// inverse p-th root: p = 4 squares twice and multiplies twice, p = 2 squares
// once less.
constexpr int64_t kProductsFourthRoot = 4;
constexpr int64_t kProductsSquareRoot = 3;

// Of an a x b block: statistics a²b + ab² (triangles), both roots applied
// 2a²b + 2ab². Summed over all blocks, a²b gives Σa²·Σb, and Σb is the side.
Work matrix_work(const BlockedSide& rows, const BlockedSide& cols,
                 int64_t iterations) {
  const Flops pairs = rows.sum_of_squares() * cols.length() +
                      cols.sum_of_squares() * rows.length();
  const Flops cubes = rows.sum_of_cubes() * cols.num_blocks() +
                      cols.sum_of_cubes() * rows.num_blocks();
  return {3 * pairs, iterations * kProductsFourthRoot * cubes};
}

Work vector_work(const BlockedSide& side, int64_t iterations) {
  return {3 * side.sum_of_squares(),
          iterations * kProductsSquareRoot * side.sum_of_cubes()};
}

StateFact at_owner(std::string name, std::vector<int64_t> shape) {
  return {std::move(name), std::move(shape), "fp32", Lives::kWithOwner};
}

// The factors and inverse roots of one side; each of its blocks has as many as
// the other side has blocks.
void add_factors(std::vector<StateFact>& states, const std::string& name,
                 const BlockedSide& side, int64_t blocks_across) {
  std::string suffix;
  for (const auto& [count, d] : side.kinds()) {
    const std::vector<int64_t> stack = {
        checked_mul(count, blocks_across, "blocks"), d, d};
    states.push_back(at_owner(cat(name, suffix), stack));
    states.push_back(at_owner(cat("inv_", name, suffix), stack));
    suffix = "_edge";
  }
}

std::vector<StateFact> all_states(MatrixShape shape, int64_t max_dim) {
  const std::vector<int64_t> sides = {shape.rows, shape.cols};
  std::vector<StateFact> states = {at_owner("filtered_grad", sides),
                                   at_owner("grafting_avg_sq", sides)};
  if (is_empty(shape)) return states;
  const BlockedSide rows(shape.rows, max_dim);
  const BlockedSide cols(shape.cols, max_dim);
  const bool vector = is_vector(shape);
  if (!vector || shape.cols == 1) {
    add_factors(states, "L", rows, cols.num_blocks());
  }
  if (!vector || shape.cols != 1) {
    add_factors(states, "R", cols, rows.num_blocks());
  }
  return states;
}

}  // namespace

ShampooFacts::ShampooFacts(const RuleOptions& given)
    : options_(options_in_force("shampoo", option_facts(), given)),
      refresh_(read_refresh("shampoo", options_)),
      max_dim_(integer_option(options_, kMaxDim)),
      root_iterations_(integer_option(options_, kRootIterations)) {}

std::vector<StateFact> ShampooFacts::states(MatrixShape shape) const {
  return states_for("shampoo", shape,
                    [&] { return all_states(shape, max_dim_); });
}

Work ShampooFacts::work(MatrixShape shape) const {
  return count_for("shampoo", shape, [&] {
    if (is_empty(shape)) return Work{};
    const BlockedSide rows(shape.rows, max_dim_);
    const BlockedSide cols(shape.cols, max_dim_);
    if (!is_vector(shape)) return matrix_work(rows, cols, root_iterations_);
    return vector_work(shape.cols == 1 ? rows : cols, root_iterations_);
  });
}

RuleEntry shampoo_entry() {
  return {"shampoo", "inverse roots of the row and column statistics",
          option_facts(), make_facts<ShampooFacts>};
}

}  // namespace canzona

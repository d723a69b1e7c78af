#include "canzona/plan/cost/matrix_blocks.h"

#include <algorithm>
#include <set>

#include "canzona/plan/cost/team_cost.h"

namespace canzona {
namespace {

int64_t pieces_along(int64_t side, int64_t piece) {
  return (side + piece - 1) / piece;
}

}  // namespace

MatrixBlocks::MatrixBlocks(const RuleFacts& rule, MatrixShape shape)
    : shape_(shape), block_(rule.block(shape)) {
  if (block_ == shape_) return;
  const int64_t down = pieces_along(shape.rows, block_.rows);
  const int64_t across = pieces_along(shape.cols, block_.cols);
  if (down > kMostBlocks || across > kMostBlocks ||
      down * across > kMostBlocks) {
    block_ = shape_;
    return;
  }
  count_ = static_cast<int32_t>(down * across);
  across_ = across;
  work_ = rule.work(shape);
  for (int32_t b = 0; b < count_; ++b) of_block_.try_emplace(shape_of(b));
  for (auto& [sides, work] : of_block_) work = rule.work(sides);
}

Rectangle MatrixBlocks::at(int32_t number) const {
  const int64_t row = number / across_ * block_.rows;
  const int64_t col = number % across_ * block_.cols;
  return {row, std::min(block_.rows, shape_.rows - row), col,
          std::min(block_.cols, shape_.cols - col)};
}

MatrixShape MatrixBlocks::shape_of(int32_t number) const {
  const Rectangle block = at(number);
  return {block.num_rows, block.num_cols};
}

template <class TicksOfPart>
MatrixCost MatrixBlocks::share(const MatrixCost& whole, int32_t number,
                               const TicksOfPart& ticks_of) const {
  if (count_ == 1) return whole;
  const RuleWork& own = of_block_.at(shape_of(number));
  return {Ticks(ticks_of(whole.every_step, own.every_step, work_.every_step)),
          Ticks(ticks_of(whole.refresh, own.refresh, work_.refresh))};
}

MatrixCost MatrixBlocks::cost(const MatrixCost& whole, int32_t number) const {
  return share(whole, number, [](Ticks ticks, Flops part, Flops all) {
    return ticks_of_part(ticks, part.value(), all);
  });
}

MatrixCost MatrixBlocks::least_cost(const MatrixCost& whole,
                                    int32_t number) const {
  return share(whole, number, [](Ticks ticks, Flops part, Flops all) {
    return all.value() == 0 ? 0
                            : static_cast<int64_t>(Int128{ticks.value()} *
                                                   part.value() / all.value());
  });
}

bool has_blocks(const SettledRequest& request, const RuleFacts& rule) {
  std::set<MatrixShape> shapes;
  for (const Matrix& m : request.matrices) shapes.insert({m.rows, m.cols});
  return std::any_of(shapes.begin(), shapes.end(), [&](MatrixShape shape) {
    return MatrixBlocks(rule, shape).fall_apart();
  });
}

}  // namespace canzona

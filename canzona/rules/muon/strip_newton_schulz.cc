#include "canzona/rules/muon/strip_newton_schulz.h"

#include <algorithm>
#include <array>

#include "canzona/base/check.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

class StripNewtonSchulz final : public StripTransform {
 public:
  StripNewtonSchulz(Engine& engine, Algebra& algebra,
                    const NewtonSchulzPlan& plan, MuonWay way,
                    MatrixShape shape, DType dtype)
      : engine_(engine),
        algebra_(algebra),
        shared_(*algebra.shared()),
        strips_(*algebra.strip_by_strip()),
        plan_(plan),
        way_(way),
        shape_(shape),
        sum_dtype_(dtype == DType::kFp64 ? dtype : DType::kFp32),
        tall_(shape.rows > shape.cols) {}

  void begin(Arena& arena) override {
    const auto [m, n] = std::minmax(shape_.rows, shape_.cols);
    for (Operand* wide : {&x_, &y_})
      *wide = algebra_.wide(arena, m, n, 1, tall_, cuts_of(n, way_.strips));
    g_ = make_gram_space(arena, algebra_, plan_, way_, m, 1);
    for (int s = 0; s < way_.strips; ++s)
      sums_[static_cast<size_t>(s)] =
          arena.take(num_summed() * shared_.sum_bytes());
    added_ = {};
    rounded_ = arena.take(num_summed() * shared_.rounded_bytes());
  }

  void sum(int strip, ConstRun matrix) override {
    load_ = {.source = as_matrices(matrix, shape_.rows, shape_.cols),
             .transpose = tall_};
    parts_[static_cast<size_t>(strip)] = strips_.load_strip(x_, load_, strip);
    add(strip);
  }

  void iterate() override {
    const std::span<NormPart> parts(parts_.data(),
                                    static_cast<size_t>(way_.strips));
    if (!shared_.normalize(x_, load_, parts, plan_.normalization, parts)) {
      // All strips have been loaded once more, multiplied by a power of two.
      added_ = {};
      for (int s = 0; s < way_.strips; ++s) add(s);
      const bool done =
          shared_.normalize(x_, load_, parts, plan_.normalization, parts);
      CANZONA_CHECK(done, "norms of strips that stay far from 1");
    }
    CANZONA_CHECK_EQ(added_[0], way_.strips, "strips that have come");
    shared_.round_sum(rounded_, sums_[0], num_summed(), x_);
    shared_.take_gram(g_.r, rounded_);
    iterate_segments(algebra_, plan_, way_, x_, y_, g_);
  }

  void multiply(int strip, Run update) override {
    strips_.multiply_strip_into(
        {.out = as_matrices(update, shape_.rows, shape_.cols),
         .transpose = tall_},
        g_.q, x_, strip);
  }

 private:
  int64_t num_summed() const { return x_.rows * (x_.rows + 1) / 2; }

  // Adds what a strip gives to the sum: halves of the tree as soon as both are
  // there.
  void add(int strip) {
    const auto triangle = [&](int of) {
      return as_matrices(Run{sums_[static_cast<size_t>(of)], sum_dtype_}, 1,
                         num_summed());
    };
    strips_.strip_sum(sums_[static_cast<size_t>(strip)], x_, strip,
                      half_of(way_));
    int left = strip, width = 1;
    while (width < way_.strips) {
      const int other = left ^ width;
      if (added_[static_cast<size_t>(other)] != width) break;
      engine_.axpby(triangle(std::min(left, other)), 1.0,
                    triangle(std::max(left, other)), 1.0);
      left = std::min(left, other);
      width *= 2;
    }
    added_[static_cast<size_t>(left)] = width;
  }

  Engine& engine_;
  Algebra& algebra_;
  SharedAlgebra& shared_;
  StripAlgebra& strips_;
  const NewtonSchulzPlan& plan_;
  const MuonWay way_;
  const MatrixShape shape_;
  const DType sum_dtype_;
  const bool tall_;
  // Of one matrix.
  Operand x_, y_;
  GramSpace g_;
  Load load_;
  // By strip: the sum of the neighbours that begin with it, and how many.
  std::array<std::byte*, Strips::kMost> sums_{};
  std::array<int, Strips::kMost> added_{};
  std::byte* rounded_ = nullptr;
  std::array<NormPart, Strips::kMost> parts_{};
};

}  // namespace

std::unique_ptr<StripTransform> newton_schulz_by_strips(
    Engine& engine, const NewtonSchulzPlan& plan, MuonWay way,
    MatrixShape shape, DType dtype) {
  Algebra& algebra = engine.algebra(plan.numbers(way).precision);
  if (algebra.shared() == nullptr || algebra.strip_by_strip() == nullptr)
    return nullptr;
  return std::make_unique<StripNewtonSchulz>(engine, algebra, plan, way, shape,
                                             dtype);
}

}  // namespace canzona

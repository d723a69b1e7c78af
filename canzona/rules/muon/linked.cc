#include "canzona/rules/muon/linked.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "canzona/rules/runs.h"
#include "canzona/rules/together.h"

namespace canzona::rules {
namespace {

// One part of a batch.
class LinkedPart {
 public:
  LinkedPart(Engine& engine, const MuonLinks& links, const LinkedInput& in,
             Matrices out)
      : engine_(engine),
        links_(links),
        in_(in),
        out_(out),
        lines_(links.moments_of_rows({out.rows, out.cols}) ? Lines::kRows
                                                           : Lines::kColumns),
        norms_(numbers(lines_)),
        factors_(numbers(lines_)) {}

  // A store without weights wants the update in `out`.
  void run(const Apply& moved, const LinkedStore& store) {
    if (links_.renorm || links_.moment == MuonLinks::Moment::kNorMuon)
      measure();
    if (links_.renorm) renorm();
    divide();
    if (links_.hyperball) return constrain(moved, store);
    if (store.weights.data == nullptr) return scale();
    if (scaled_)
      return engine_.apply_lines(store.weights,
                                 {.update = out_,
                                  .factors = factors_,
                                  .lines = lines_,
                                  .apply = store.apply},
                                 store.rounded);
    for (int64_t i = 0; i < out_.count; ++i)
      engine_.apply({store.weights.at(i).data, out_.dtype},
                    Run{out_.at(i).data, out_.dtype}, store.apply,
                    out_.elements(),
                    store.rounded != nullptr ? store.rounded[i] : nullptr);
  }

 private:
  Matrices numbers(Lines lines) const {
    return engine_.arena().matrices(
        out_.dtype, 1, lines == Lines::kRows ? out_.rows : out_.cols,
        out_.count);
  }
  Matrices row_norms(ConstMatrices a) const {
    const Matrices norms = numbers(Lines::kRows);
    engine_.line_norms(norms, a, Lines::kRows);
    return norms;
  }

  void measure() {
    engine_.line_norms(norms_, out_, lines_);
    scaled_ = false;
  }

  // Adds a link to the chain of factors.
  void link(LineFactors how, Matrices moments = {}, ConstMatrices other = {}) {
    how.first = !scaled_;
    engine_.line_factors(factors_, norms_, how, moments, other);
    scaled_ = true;
  }

  void scale() {
    if (!scaled_) return;
    if (lines_ == Lines::kRows)
      engine_.scale_rows(out_, out_, factors_);
    else
      engine_.scale_columns(out_, out_, factors_);
    scaled_ = false;
  }

  void renorm() {
    const auto short_side = static_cast<double>(std::min(out_.rows, out_.cols));
    link({.target = std::sqrt(short_side), .floor = links_.renorm_eps});
  }

  void divide() {
    switch (links_.moment) {
      case MuonLinks::Moment::kNone:
        return;
      case MuonLinks::Moment::kNorMuon:
        return by_lines();
      case MuonLinks::Moment::kAdaMuon:
        return by_elements();
      case MuonLinks::Moment::kNamo:
        return by_gradient();
    }
  }

  LineFactors averaging(LineFactors::Kind kind) const {
    return {.kind = kind,
            .floor = links_.norm_eps,
            .keep = links_.beta2,
            .add = 1 - links_.beta2,
            .epsilon = links_.moment_eps,
            .clamp = links_.clamp};
  }

  void by_lines() {
    LineFactors how = averaging(LineFactors::Kind::kMoments);
    how.length = static_cast<double>(out_.elements() / norms_.cols);
    link(how, as_matrices(in_.moments, 1, norms_.cols, out_.count));
  }

  void by_elements() {
    scale();
    const int64_t elements = out_.elements() * out_.count;
    const Run flat{out_.data, out_.dtype};
    engine_.adam(flat, {}, in_.moments, flat,
                 {.v_keep = links_.beta2,
                  .v_add = 1 - links_.beta2,
                  .from_moment = 0,
                  .from_grad = 1,
                  .epsilon = links_.moment_eps},
                 elements);
  }

  // The blend's norm takes the place of the factor's, which does not count.
  void by_gradient() {
    const Matrices blend = numbers(lines_);
    engine_.line_norms(blend, in_.blend, lines_);
    const Matrices own = std::exchange(norms_, blend);
    link(averaging(LineFactors::Kind::kMoment),
         as_matrices(in_.moments, 1, 1, out_.count), row_norms(in_.grad));
    norms_ = own;
  }

  // p - project(p moved by the update of the radius' length)
  void constrain(const Apply& moved, const LinkedStore& store) {
    if (lines_ == Lines::kColumns) scale();
    LineUpdate how{.update = out_, .apply = moved};
    const RowSums sums{numbers(Lines::kRows), numbers(Lines::kRows),
                       numbers(Lines::kRows)};
    engine_.row_sums(sums, out_, in_.weights);
    const Matrices factors = scaled_ ? factors_ : numbers(Lines::kRows);
    engine_.line_factors(factors, sums.update,
                         {.first = !scaled_,
                          .target = links_.radius,
                          .floor = links_.constraint_eps,
                          .zero_below = true},
                         {}, links_.radius == 0 ? sums.weights : Matrices{});
    how.factors = factors;
    const Matrices lengths = numbers(Lines::kRows);
    set_lengths(lengths, sums, how);
    how.lengths = lengths;
    if (store.weights.data != nullptr)
      engine_.apply_lines(store.weights, how, store.rounded);
    else
      engine_.project_lines(in_.weights, how);
  }

  void set_lengths(Matrices lengths, const RowSums& sums,
                   const LineUpdate& how) {
    if (!how.apply.cautious)
      return engine_.moved_factors(lengths, sums, how.factors, how.apply,
                                   links_.radius, links_.constraint_eps);
    // Which elements decay does not follow from sums.
    const Arena::Scope scope(engine_.arena());
    const auto scratch = [&] {
      return engine_.arena().matrices(out_.dtype, out_.rows, out_.cols,
                                      out_.count);
    };
    const Matrices moved = scratch(), update = scratch();
    engine_.scale_rows(update, out_, how.factors);
    for (int64_t i = 0; i < out_.count; ++i) {
      engine_.copy(moved.at(i), in_.weights.at(i));
      engine_.apply({moved.at(i).data, moved.dtype},
                    Run{update.at(i).data, update.dtype}, how.apply,
                    moved.elements());
    }
    engine_.line_factors(lengths, row_norms(moved),
                         {.target = links_.radius,
                          .floor = links_.constraint_eps,
                          .zero_below = true},
                         {}, links_.radius == 0 ? sums.weights : Matrices{});
  }

  Engine& engine_;
  const MuonLinks& links_;
  const LinkedInput& in_;
  const Matrices out_;
  const Lines lines_;
  Matrices norms_;
  const Matrices factors_;
  bool scaled_ = false;
};

}  // namespace

void run_links(Engine& engine, const MuonLinks& links, const LinkedInput& in,
               Matrices out, const Apply& moved, const Orthogonalize& factor,
               const LinkedStore* store) {
  if (out.elements() == 0) return;
  const int64_t moments = links.num_moments({out.rows, out.cols});
  for_each_part(engine, out.count, [&](int64_t begin, int64_t size) {
    const Arena::Scope scope(engine.arena());
    LinkedInput part = in;
    for (ConstMatrices* field : {&part.blend, &part.grad, &part.weights})
      if (field->data != nullptr) *field = field->part(begin, size);
    part.moments = advanced(in.moments, begin * moments);
    LinkedStore there;
    if (store != nullptr)
      there = {store->weights.part(begin, size), store->apply,
               store->rounded != nullptr ? store->rounded + begin : nullptr};
    factor(out.part(begin, size), begin);
    LinkedPart(engine, links, part, out.part(begin, size)).run(moved, there);
  });
}

}  // namespace canzona::rules

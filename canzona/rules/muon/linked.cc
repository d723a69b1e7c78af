#include "canzona/rules/muon/linked.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "canzona/rules/runs.h"
#include "canzona/rules/together.h"

namespace canzona {
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

  void run(const Apply& apply, const Orthogonalize& factor, int64_t begin) {
    const ConstMatrices u = links_.equilibrate ? equilibrated() : in_.blend;
    if (in_.hook != nullptr && u.data == out_.data) {
      // The factor overwrites its input.
      const Matrices kept =
          engine_.arena().matrices(u.dtype, u.rows, u.cols, u.count);
      engine_.copy(kept, u);
      factor(u, out_, begin);
      in_.hook->saw_factor(kept, out_);
    } else {
      factor(u, out_, begin);
      if (in_.hook != nullptr) in_.hook->saw_factor(u, out_);
    }
    if (links_.renorm || links_.moment == MuonLinks::Moment::kNorMuon ||
        links_.hyperball)
      measure();
    if (links_.renorm) renorm();
    divide();
    if (links_.hyperball) set_length();
    scale();
    if (links_.hyperball) project(apply);
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

  ConstMatrices equilibrated() const {
    const Matrices norms = row_norms(in_.blend);
    const Matrices factors = numbers(Lines::kRows);
    engine_.line_factors(
        factors, norms,
        {.kind = LineFactors::Kind::kEven, .floor = links_.equilibrate_eps}, {},
        {});
    engine_.scale_rows(out_, in_.blend, factors);
    return out_;
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
    if (links_.hyperball) measure();
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

  void set_length() {
    LineFactors how{.target = links_.radius,
                    .floor = links_.constraint_eps,
                    .zero_below = true};
    link(how, {}, radius());
  }

  // The norms that make up the radius; none if it is a number.
  ConstMatrices radius() {
    if (links_.radius != 0) return {};
    if (weights_.data == nullptr) weights_ = row_norms(in_.weights);
    return weights_;
  }

  // out = p - project(moved p)
  void project(const Apply& apply) {
    const Matrices moved =
        engine_.arena().matrices(out_.dtype, out_.rows, out_.cols, out_.count);
    engine_.copy(moved, in_.weights);
    engine_.apply({moved.data, moved.dtype}, Run{out_.data, out_.dtype}, apply,
                  moved.elements() * moved.count);
    const Matrices norms = row_norms(moved);
    const Matrices factors = numbers(Lines::kRows);
    engine_.line_factors(factors, norms,
                         {.target = links_.radius,
                          .floor = links_.constraint_eps,
                          .zero_below = true},
                         {}, radius());
    engine_.scale_rows(moved, moved, factors);
    engine_.copy(out_, in_.weights);
    engine_.axpby(out_, -1, moved, 1);
  }

  Engine& engine_;
  const MuonLinks& links_;
  const LinkedInput& in_;
  const Matrices out_;
  const Lines lines_;
  Matrices norms_;
  const Matrices factors_;
  Matrices weights_{};
  bool scaled_ = false;
};

// The numbers of the second moment of one matrix.
int64_t moments_of(const MuonLinks& links, MatrixShape shape) {
  switch (links.moment) {
    case MuonLinks::Moment::kNorMuon:
      return links.moments_of_rows(shape) ? shape.rows : shape.cols;
    case MuonLinks::Moment::kAdaMuon:
      return shape.rows * shape.cols;
    case MuonLinks::Moment::kNamo:
      return 1;
    case MuonLinks::Moment::kNone:
      break;
  }
  return 0;
}

}  // namespace

void run_links(Engine& engine, const MuonLinks& links, const LinkedInput& in,
               Matrices out, const Apply& apply, const Orthogonalize& factor) {
  if (out.elements() == 0) return;
  const int64_t moments = moments_of(links, {out.rows, out.cols});
  for_each_part(engine, out.count, [&](int64_t begin, int64_t size) {
    const Arena::Scope scope(engine.arena());
    LinkedInput part = in;
    for (ConstMatrices* field : {&part.blend, &part.grad, &part.weights})
      if (field->data != nullptr) *field = field->part(begin, size);
    part.moments = advanced(in.moments, begin * moments);
    LinkedPart(engine, links, part, out.part(begin, size))
        .run(apply, factor, begin);
  });
}

}  // namespace canzona

#include "canzona/rules/axes.h"

#include "canzona/base/check.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

// The tensor as a stack of length x inner matrices.
template <class AnyRun>
auto stacked(AnyRun run, const AxisView& view) {
  return as_matrices(run, view.length, view.inner, view.outer);
}

// An innermost axis lies along the rows of one outer x length matrix.
template <class AnyRun>
auto as_rows(AnyRun run, const AxisView& view) {
  return as_matrices(run, view.outer, view.length);
}

}  // namespace

AxisView view_along(std::span<const int64_t> dims, int axis) {
  CANZONA_CHECK(axis >= 0 && axis < static_cast<int>(dims.size()), "axis ",
                axis, " of ", dims.size());
  const auto along = static_cast<size_t>(axis);
  AxisView view;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i < along) view.outer *= dims[i];
    if (i == along) view.length = dims[i];
    if (i > along) view.inner *= dims[i];
  }
  return view;
}

void add_statistics(Engine& engine, Matrices f, double keep, double add,
                    ConstRun g, std::span<const int64_t> dims, int axis) {
  const AxisView view = view_along(dims, axis);
  if (view.inner == 1) {
    engine.symmetric_product(f, add, as_rows(g, view), Op::kTranspose, keep);
    return;
  }
  const ConstMatrices all = stacked(g, view);
  for (int64_t o = 0; o < view.outer; ++o)
    engine.symmetric_product(f, add, all.at(o), Op::kNone, o == 0 ? keep : 1.0);
}

void rotate(Engine& engine, Run to, ConstRun from,
            std::span<const int64_t> dims, int axis, ConstMatrices q, Op op) {
  const AxisView view = view_along(dims, axis);
  if (view.inner == 1) {
    const Op other = op == Op::kNone ? Op::kTranspose : Op::kNone;
    engine.product(as_rows(to, view), 1.0, as_rows(from, view), Op::kNone, q,
                   other, 0.0);
    return;
  }
  const ConstMatrices source = stacked(from, view);
  const Matrices target = stacked(to, view);
  for (int64_t o = 0; o < view.outer; ++o)
    engine.product(target.at(o), 1.0, q, op, source.at(o), Op::kNone, 0.0);
}

void permute(Engine& engine, Run to, ConstRun from,
             std::span<const int64_t> dims, int axis,
             std::span<const int64_t> order) {
  const AxisView view = view_along(dims, axis);
  if (view.inner == 1)
    engine.permute_columns(as_rows(to, view), as_rows(from, view), order);
  else
    engine.permute_rows(stacked(to, view), stacked(from, view), order);
}

}  // namespace canzona

#include "canzona/rules/axes.h"

#include "canzona/base/check.h"
#include "canzona/rules/runs.h"

namespace canzona {
namespace {

// Place `outer` of each of the tensors, length x inner.
template <class AnyRun>
auto at_place(AnyRun run, const AxisView& view, int64_t outer, int64_t count) {
  const int64_t slab = view.length * view.inner;
  auto each =
      as_matrices(advanced(run, outer * slab), view.length, view.inner, count);
  each.matrix_stride = view.outer * slab;
  return each;
}

// An innermost axis lies along the rows of one outer x length matrix.
template <class AnyRun>
auto as_rows(AnyRun run, const AxisView& view, int64_t count) {
  return as_matrices(run, view.outer, view.length, count);
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
    engine.symmetric_product(f, add, as_rows(g, view, f.count), Op::kTranspose,
                             keep);
    return;
  }
  for (int64_t o = 0; o < view.outer; ++o)
    engine.symmetric_product(f, add, at_place(g, view, o, f.count), Op::kNone,
                             o == 0 ? keep : 1.0);
}

void rotate(Engine& engine, Run to, ConstRun from,
            std::span<const int64_t> dims, int axis, ConstMatrices q, Op op) {
  const AxisView view = view_along(dims, axis);
  if (view.inner == 1) {
    const Op other = op == Op::kNone ? Op::kTranspose : Op::kNone;
    engine.product(as_rows(to, view, q.count), 1.0,
                   as_rows(from, view, q.count), Op::kNone, q, other, 0.0);
    return;
  }
  for (int64_t o = 0; o < view.outer; ++o)
    engine.product(at_place(to, view, o, q.count), 1.0, q, op,
                   at_place(from, view, o, q.count), Op::kNone, 0.0);
}

void permute(Engine& engine, Run to, ConstRun from,
             std::span<const int64_t> dims, int axis, ConstOrders orders) {
  const AxisView view = view_along(dims, axis);
  if (view.inner == 1) {
    engine.permute_columns(as_rows(to, view, orders.count),
                           as_rows(from, view, orders.count), orders);
    return;
  }
  const auto slabs = [&](auto run) {
    return as_matrices(run, view.length, view.inner, orders.count * view.outer);
  };
  engine.permute_rows(slabs(to), slabs(from), orders);
}

}  // namespace canzona

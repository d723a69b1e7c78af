#include "canzona/plan/schedule/routes.h"

#include <algorithm>

namespace canzona {
namespace {

// Rows [begin, end) of a part that tp rank t stores.
struct Interval {
  int64_t begin = 0;
  int64_t end = 0;
};

Interval share_of(int64_t rows, int32_t tp, int32_t t) {
  return {rows * t / tp, rows * (t + 1) / tp};
}

Interval meet(Interval a, Interval b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// A run of tensor rows on one tp rank; `part_row` is its first row in the part.
struct Run {
  int64_t tensor_row = 0;
  int64_t num_rows = 0;
  int32_t part = 0;
  int64_t part_row = 0;
  int64_t shard_row = 0;
};

std::vector<Part> parts_of(const Tensor& tensor) {
  if (!tensor.parts.empty()) return tensor.parts;
  return {{"", {0, tensor.rows(), tensor.rows(), 1}, 1}};
}

void append_runs(const Part& part, int32_t number, Interval rows,
                 std::vector<Run>& out) {
  const int64_t run = std::max<int64_t>(part.rows.run, 1);
  for (int64_t i = rows.begin; i < rows.end;) {
    const int64_t stop = std::min(rows.end, (i / run + 1) * run);
    out.push_back({part.rows.row(i), stop - i, number, i, 0});
    i = stop;
  }
}

// The rows of the shard on tp rank t, in the tensor's order.
std::vector<Run> shard_runs(const Tensor& tensor, int32_t tp, int32_t t) {
  std::vector<Run> runs;
  const std::vector<Part> parts = parts_of(tensor);
  for (size_t n = 0; n < parts.size(); ++n) {
    const int64_t rows = parts[n].rows.rows();
    const Interval share =
        tensor.cut == Cut::kRows ? share_of(rows, tp, t) : Interval{0, rows};
    append_runs(parts[n], static_cast<int32_t>(n), share, runs);
  }
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) {
    return a.tensor_row < b.tensor_row;
  });
  int64_t shard_row = 0;
  for (Run& run : runs) {
    run.shard_row = shard_row;
    shard_row += run.num_rows;
  }
  return runs;
}

// Appends a route, joined to the one before where both continue it.
void append(std::vector<Route>& routes, const Route& next) {
  if (next.num_rows == 0 || next.num_cols == 0) return;
  if (!routes.empty()) {
    Route& last = routes.back();
    if (last.t == next.t && last.first_col == next.first_col &&
        last.first_row + last.num_rows == next.first_row &&
        last.shard_row + last.num_rows == next.shard_row) {
      last.num_rows += next.num_rows;
      return;
    }
  }
  routes.push_back(next);
}

// The rows of `run` that lie in the slice.
Run cut_to_slice(Run run, const RowRange& slice) {
  const Interval rows = meet({run.shard_row, run.shard_row + run.num_rows},
                             {slice.first, slice.end()});
  const int64_t skipped = rows.begin - run.shard_row;
  run.tensor_row += skipped;
  run.part_row += skipped;
  run.shard_row = rows.begin;
  run.num_rows = std::max<int64_t>(rows.end - rows.begin, 0);
  return run;
}

void append_routes(const Tensor& tensor, const Matrix& matrix, const Mesh& grid,
                   int32_t plane, std::vector<Route>& routes) {
  const int32_t tp = grid.tp_ranks();
  const int32_t t = plane % tp;
  const Interval cols = tensor.cut == Cut::kColumns
                            ? share_of(tensor.cols(), tp, t)
                            : Interval{0, tensor.cols()};
  const RowRange slice = slice_rows(grid, tensor, grid.slice_of(plane / tp));
  for (const Run& whole : shard_runs(tensor, tp, t)) {
    const Run run = cut_to_slice(whole, slice);
    if (run.num_rows == 0) continue;
    Interval rows{run.part_row, run.part_row + run.num_rows};
    int64_t first_row = run.tensor_row;
    int64_t shard_row = run.shard_row;
    if (matrix.part >= 0) {
      if (matrix.part != run.part) continue;
      rows = meet(rows, {matrix.first_row, matrix.first_row + matrix.rows});
      if (rows.begin >= rows.end) continue;
      first_row = rows.begin - matrix.first_row;
      shard_row += rows.begin - run.part_row;
    }
    append(routes, {plane, first_row, rows.end - rows.begin, cols.begin,
                    cols.end - cols.begin, shard_row});
  }
}

}  // namespace

std::vector<Route> routes_of(const Tensor& tensor, const Matrix& matrix,
                             const Mesh& grid) {
  std::vector<Route> routes;
  for (int32_t t = 0; t < grid.tp; ++t) {
    append_routes(tensor, matrix, grid, t, routes);
  }
  return routes;
}

std::vector<Route> routes_of(const Tensor& tensor, const Matrix& matrix,
                             int32_t tp) {
  Mesh grid;
  grid.tp = tp;
  return routes_of(tensor, matrix, grid);
}

bool is_cut(const Mesh& grid, const Tensor& tensor) {
  return grid.places > 1 || (tensor.cut != Cut::kNone && grid.tp > 1);
}

bool sends_to(const Mesh& grid, const Tensor& tensor, int32_t t,
              int32_t owner) {
  const int32_t tp = grid.tp_ranks();
  return tensor.cut != Cut::kNone || t % tp == owner % tp;
}

std::vector<Route> routes_of(const PlanPart& plan, int32_t matrix) {
  const Matrix& m = plan.matrices[static_cast<size_t>(matrix)];
  return routes_of(plan.model.tensors[static_cast<size_t>(m.tensor)], m,
                   plan.grid);
}

namespace {

int64_t elements_in_slice(const Mesh& grid, const Tensor& tensor,
                          const Matrix& matrix, int32_t plane) {
  if (matrix.part < 0)
    return slice_elements(grid, tensor, grid.slice_of(plane / grid.tp_ranks()));
  std::vector<Route> routes;
  append_routes(tensor, matrix, grid, plane, routes);
  int64_t sum = 0;
  for (const Route& r : routes) sum += r.num_rows * r.num_cols;
  return sum;
}

}  // namespace

int64_t elements_on(const PlanPart& plan, int32_t matrix, int32_t t) {
  const Matrix& m = plan.matrices[static_cast<size_t>(matrix)];
  const Tensor& tensor = plan.model.tensors[static_cast<size_t>(m.tensor)];
  const int32_t tp = plan.grid.tp;
  if (plan.grid.places > 1) return elements_in_slice(plan.grid, tensor, m, t);
  if (tensor.cut == Cut::kNone) return m.rows * m.cols;
  if (tensor.cut == Cut::kColumns) return m.rows * (m.cols / tp);
  if (m.part < 0) return m.rows / tp * m.cols;
  const int64_t rows =
      tensor.parts.empty()
          ? tensor.rows()
          : tensor.parts[static_cast<size_t>(m.part)].rows.rows();
  const Interval held =
      meet(share_of(rows, tp, t), {m.first_row, m.first_row + m.rows});
  return std::max<int64_t>(held.end - held.begin, 0) * m.cols;
}

std::vector<int64_t> elements_by_rank(const PlanPart& plan, int32_t matrix) {
  const auto tp = static_cast<size_t>(plan.grid.tp);
  std::vector<int64_t> out(tp, elements_on(plan, matrix, 0));
  // Whole tensors are cut evenly; heads and other pieces need not be.
  const bool even = plan.grid.places == 1 &&
                    plan.matrices[static_cast<size_t>(matrix)].part < 0;
  if (even) return out;
  for (size_t t = 1; t < tp; ++t) {
    out[t] = elements_on(plan, matrix, static_cast<int32_t>(t));
  }
  return out;
}

}  // namespace canzona

#include "canzona/plan/schedule/routes.h"

#include <algorithm>

#include "canzona/plan/schedule/slices.h"

namespace canzona::plan {
namespace {

// Returns the rows of a section, or the columns, that tp rank t stores.
Extent share_of(int64_t rows, int32_t tp, int32_t t) {
  const int64_t first = rows * t / tp;
  return {first, rows * (t + 1) / tp - first};
}

// Rows of one section in the shard of one tp rank.
struct ShardRows {
  ExtentCopy rows;  // from the tensor to the shard
  int32_t section = 0;
  int64_t section_row = 0;  // of the first

  ShardRows of_slice(const Extent& slice) const {
    const ExtentCopy own = rows.to_within(slice);
    return {own, section, section_row + own.from - rows.from};
  }
};

void append_runs(const Section& section, int32_t number, const Extent& rows,
                 std::vector<ShardRows>& out) {
  const int64_t run = std::max<int64_t>(section.rows.run, 1);
  for (int64_t i = rows.first; i < rows.end();) {
    const int64_t stop = std::min(rows.end(), (i / run + 1) * run);
    out.push_back({{section.rows.row(i), 0, stop - i}, number, i});
    i = stop;
  }
}

// Returns the rows of the shard on tp rank t, in the tensor's order.
std::vector<ShardRows> shard_rows_of(const Tensor& tensor, int32_t tp,
                                     int32_t t) {
  std::vector<ShardRows> runs;
  const auto share = [&](int64_t rows) {
    return tensor.cut == Cut::kRows ? share_of(rows, tp, t) : Extent{0, rows};
  };
  if (tensor.sections.empty()) {
    const Extent own = share(tensor.rows());
    if (own.count > 0)
      runs.push_back({{own.first, 0, own.count}, 0, own.first});
    return runs;
  }
  for (size_t n = 0; n < tensor.sections.size(); ++n)
    append_runs(tensor.sections[n], static_cast<int32_t>(n),
                share(tensor.sections[n].rows.rows()), runs);
  std::ranges::sort(runs, {}, [](const ShardRows& s) { return s.rows.from; });
  int64_t shard_row = 0;
  for (ShardRows& run : runs) {
    run.rows.to = shard_row;
    shard_row += run.rows.count;
  }
  return runs;
}

// Appends a route, or extends the last one if the new route continues it in
// matrix and shard.
void append(std::vector<Route>& routes, const Route& next) {
  if (next.elements() == 0) return;
  if (!routes.empty()) {
    Route& last = routes.back();
    if (last.t == next.t && last.first_col == next.first_col &&
        last.end_row() == next.first_row &&
        last.shard_row + last.num_rows == next.shard_row) {
      last.num_rows += next.num_rows;
      return;
    }
  }
  routes.push_back(next);
}

void append_routes(const Tensor& tensor, const Matrix& matrix, const Mesh& grid,
                   int32_t plane, std::vector<Route>& routes) {
  const int32_t tp = grid.tp_ranks();
  const int32_t t = grid.tp_rank_of(plane);
  const Extent cols = tensor.cut == Cut::kColumns
                          ? share_of(tensor.cols(), tp, t)
                          : Extent{0, tensor.cols()};
  const Extent slice =
      slice_rows(grid, tensor, grid.slice_of(grid.place_of(plane)));
  for (const ShardRows& whole : shard_rows_of(tensor, tp, t)) {
    const ShardRows run = whole.of_slice(slice);
    ExtentCopy rows = run.rows;  // from the matrix
    if (matrix.section >= 0) {
      if (matrix.section != run.section) continue;
      rows =
          ExtentCopy{run.section_row, run.rows.to, run.rows.count}.from_within(
              {matrix.first_row, matrix.rows});
      rows.from -= matrix.first_row;
    }
    append(routes,
           {{rows.from, rows.count, cols.first, cols.count}, plane, rows.to});
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
  return tensor.cut != Cut::kNone ||
         grid.tp_rank_of(t) == grid.tp_rank_of(owner);
}

std::vector<Route> routes_of(const PlanPart& plan, int32_t matrix) {
  std::vector<Route> routes;
  for (int32_t t = 0; t < plan.grid.tp; ++t)
    append_routes(plan, matrix, t, routes);
  return routes;
}

void append_routes(const PlanPart& plan, int32_t matrix, int32_t t,
                   std::vector<Route>& routes) {
  if (plan.given) {
    for (const Rectangle& piece : plan.given->pieces(matrix, t))
      routes.push_back({piece, t, 0});
    return;
  }
  const Matrix& m = plan.matrices[static_cast<size_t>(matrix)];
  append_routes(plan.model.tensors[static_cast<size_t>(m.tensor)], m, plan.grid,
                t, routes);
}

namespace {

int64_t elements_in_slice(const Mesh& grid, const Tensor& tensor,
                          const Matrix& matrix, int32_t plane) {
  if (matrix.section < 0)
    return slice_elements(grid, tensor, grid.slice_of(grid.place_of(plane)));
  std::vector<Route> routes;
  append_routes(tensor, matrix, grid, plane, routes);
  int64_t sum = 0;
  for (const Route& r : routes) sum += r.elements();
  return sum;
}

}  // namespace

int64_t elements_on(const PlanPart& plan, int32_t matrix, int32_t t) {
  if (plan.given) {
    int64_t sum = 0;
    for (const Rectangle& piece : plan.given->pieces(matrix, t))
      sum += piece.elements();
    return sum;
  }
  const Matrix& m = plan.matrices[static_cast<size_t>(matrix)];
  const Tensor& tensor = plan.model.tensors[static_cast<size_t>(m.tensor)];
  const int32_t tp = plan.grid.tp;
  if (plan.grid.places > 1) return elements_in_slice(plan.grid, tensor, m, t);
  if (tensor.cut == Cut::kNone) return m.rows * m.cols;
  if (tensor.cut == Cut::kColumns) return m.rows * (m.cols / tp);
  if (m.section < 0) return m.rows / tp * m.cols;
  const int64_t rows =
      tensor.sections.empty()
          ? tensor.rows()
          : tensor.sections[static_cast<size_t>(m.section)].rows.rows();
  return share_of(rows, tp, t).meet({m.first_row, m.rows}).count * m.cols;
}

std::vector<int64_t> elements_by_rank(const PlanPart& plan, int32_t matrix) {
  const auto tp = static_cast<size_t>(plan.grid.tp);
  std::vector<int64_t> out(tp, elements_on(plan, matrix, 0));
  // Whole tensors are cut evenly, unless their rows do not divide into slices;
  // heads and other sections may not be.
  const Matrix& m = plan.matrices[static_cast<size_t>(matrix)];
  const Tensor& tensor = plan.model.tensors[static_cast<size_t>(m.tensor)];
  const bool is_whole = !plan.given && m.section < 0;
  const Mesh& grid = plan.grid;
  const int64_t rows = shard_rows(grid, tensor);
  if (is_whole && rows % grid.places == 0) return out;
  if (is_whole) {
    const int64_t cols = shard_cols(grid, tensor);
    std::vector<int64_t> slices;
    each_slice(rows, grid.places,
               [&](int32_t, int64_t own) { slices.push_back(own * cols); });
    for (size_t t = 0; t < tp; ++t)
      out[t] = slices[static_cast<size_t>(
          grid.slice_of(grid.place_of(static_cast<int32_t>(t))))];
    return out;
  }
  for (size_t t = 1; t < tp; ++t) {
    out[t] = elements_on(plan, matrix, static_cast<int32_t>(t));
  }
  return out;
}

}  // namespace canzona::plan

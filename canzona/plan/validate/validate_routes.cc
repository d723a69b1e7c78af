#include "canzona/plan/validate/validate_routes.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "canzona/base/text.h"
#include "canzona/plan/schedule/routes.h"

namespace canzona {
namespace {

// True if the rectangles (row, column, rows, columns) cover rows × cols exactly
// once. Routes of one matrix share a grid of columns, so it suffices that areas
// add up and that no two meet.
struct Box {
  int64_t row, col, rows, cols;
};

bool tiles(std::vector<Box> boxes, int64_t rows, int64_t cols) {
  int64_t area = 0;
  for (const Box& b : boxes) {
    if (b.row < 0 || b.col < 0 || b.row + b.rows > rows ||
        b.col + b.cols > cols) {
      return false;
    }
    area += b.rows * b.cols;
  }
  if (area != rows * cols) return false;
  std::sort(boxes.begin(), boxes.end(), [](const Box& a, const Box& b) {
    return std::tie(a.col, a.row) < std::tie(b.col, b.row);
  });
  for (size_t i = 1; i < boxes.size(); ++i) {
    const Box& a = boxes[i - 1];
    const Box& b = boxes[i];
    const bool same_columns = a.col == b.col && a.cols == b.cols;
    if (same_columns ? a.row + a.rows > b.row : a.col + a.cols > b.col) {
      return false;
    }
  }
  return true;
}

class TensorRoutes {
 public:
  TensorRoutes(const PlanPart& part, size_t tensor)
      : part_(part),
        tensor_(part.model.tensors[tensor]),
        first_(part.first_matrix[tensor]),
        last_(part.first_matrix[tensor + 1]) {}

  bool gather_is_exact() const {
    for (int32_t m = first_; m < last_; ++m) {
      const Matrix& matrix = part_.matrices[static_cast<size_t>(m)];
      std::vector<Box> boxes;
      for (const Route& r : routes_of(part_, m)) {
        // Every tp rank stores the same of what is not cut.
        if (!sends_to(part_.grid, tensor_, r.t, 0)) continue;
        boxes.push_back({r.first_row, r.first_col, r.num_rows, r.num_cols});
      }
      if (!tiles(std::move(boxes), matrix.rows, matrix.cols)) return false;
    }
    return true;
  }

  bool scatter_is_exact() const {
    const int32_t tp = part_.grid.tp;
    std::vector<std::vector<Box>> shards(static_cast<size_t>(tp));
    for (int32_t m = first_; m < last_; ++m) {
      for (const Route& r : routes_of(part_, m)) {
        shards[static_cast<size_t>(r.t)].push_back(
            {r.shard_row - slice_at(r.t).first, 0, r.num_rows, r.num_cols});
      }
    }
    for (int32_t t = 0; t < tp; ++t)
      if (!tiles(shards[static_cast<size_t>(t)], slice_at(t).count,
                 shard_cols(part_.grid, tensor_)))
        return false;
    return true;
  }

 private:
  RowRange slice_at(int32_t plane) const {
    const Mesh& grid = part_.grid;
    return slice_rows(grid, tensor_, grid.slice_of(plane / grid.tp_ranks()));
  }

  const PlanPart& part_;
  const Tensor& tensor_;
  int32_t first_;
  int32_t last_;
};

// Tensors of equal shape, cut and parts have equal routes; one of each is
// checked.
struct Kind {
  std::vector<int64_t> shape;
  Cut cut = Cut::kNone;
  int32_t num_matrices = 0;
  std::vector<int64_t> parts;  // all numbers of each
  friend auto operator<=>(const Kind&, const Kind&) = default;
};

Kind kind_of(const PlanPart& part, size_t t) {
  const Tensor& tensor = part.model.tensors[t];
  Kind kind{tensor.shape,
            tensor.cut,
            part.first_matrix[t + 1] - part.first_matrix[t],
            {}};
  for (const Part& part : tensor.parts) {
    const RowRuns& r = part.rows;
    kind.parts.insert(kind.parts.end(),
                      {r.first, r.run, r.stride, r.count, part.heads});
  }
  return kind;
}

}  // namespace

void check_routes(const PlanPart& part, std::vector<std::string>& violations) {
  std::set<Kind> checked;
  for (size_t t = 0; t < part.model.tensors.size(); ++t) {
    if (!part.model.tensors[t].matrix_rule) continue;
    if (part.model.tensors[t].elements() == 0) continue;
    if (!checked.insert(kind_of(part, t)).second) continue;
    const TensorRoutes routes(part, t);
    const std::string name = quoted(part.model.tensors[t].name);
    if (!routes.gather_is_exact()) {
      violations.push_back(
          cat("tensor ", name, ": gather routes do not tile its matrices"));
    }
    if (!routes.scatter_is_exact()) {
      violations.push_back(
          cat("tensor ", name, ": scatter routes do not tile its shards"));
    }
  }
}

}  // namespace canzona

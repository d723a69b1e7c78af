#include "canzona/plan/validate/validate.h"

#include <algorithm>
#include <set>
#include <utility>

#include "canzona/base/text.h"
#include "canzona/plan/schedule/routes.h"

namespace canzona {
using namespace plan;
namespace {

// True if the rectangles cover rows × cols exactly once. Routes of one matrix
// share a grid of columns, so it suffices that areas add up and that no two
// meet.
bool tiles(std::vector<Rectangle> boxes, int64_t rows, int64_t cols) {
  int64_t area = 0;
  for (const Rectangle& b : boxes) {
    if (b.first_row < 0 || b.first_col < 0 || b.end_row() > rows ||
        b.end_col() > cols)
      return false;
    area += b.elements();
  }
  if (area != rows * cols) return false;
  std::ranges::sort(boxes, {}, [](const Rectangle& b) {
    return std::pair(b.first_col, b.first_row);
  });
  for (size_t i = 1; i < boxes.size(); ++i) {
    const Rectangle& a = boxes[i - 1];
    const Rectangle& b = boxes[i];
    const bool same_columns =
        a.first_col == b.first_col && a.num_cols == b.num_cols;
    if (same_columns ? a.end_row() > b.first_row : a.end_col() > b.first_col)
      return false;
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
      std::vector<Rectangle> boxes;
      for (const Route& r : routes_of(part_, m)) {
        // All tp ranks store the same data of a tensor that is not cut; one of
        // them is counted.
        if (!sends_to(part_.grid, tensor_, r.t, 0)) continue;
        boxes.push_back(r);
      }
      if (!tiles(std::move(boxes), matrix.rows, matrix.cols)) return false;
    }
    return true;
  }

  bool scatter_is_exact() const {
    const int32_t tp = part_.grid.tp;
    std::vector<std::vector<Rectangle>> shards(static_cast<size_t>(tp));
    for (int32_t m = first_; m < last_; ++m) {
      for (const Route& r : routes_of(part_, m)) {
        shards[static_cast<size_t>(r.t)].push_back(
            {r.shard_row - slice_at(r.t).first, r.num_rows, 0, r.num_cols});
      }
    }
    for (int32_t t = 0; t < tp; ++t)
      if (!tiles(shards[static_cast<size_t>(t)], slice_at(t).count,
                 shard_cols(part_.grid, tensor_)))
        return false;
    return true;
  }

 private:
  Extent slice_at(int32_t plane) const {
    const Mesh& grid = part_.grid;
    return slice_rows(grid, tensor_, grid.slice_of(plane / grid.tp_ranks()));
  }

  const PlanPart& part_;
  const Tensor& tensor_;
  int32_t first_;
  int32_t last_;
};

// Tensors of equal shape, cut and sections have equal routes, so one of each
// kind is checked.
struct Kind {
  std::vector<int64_t> shape;
  Cut cut = Cut::kNone;
  int32_t num_matrices = 0;
  std::vector<int64_t> sections;  // all numbers of each
  friend auto operator<=>(const Kind&, const Kind&) = default;
};

Kind kind_of(const PlanPart& part, size_t t) {
  const Tensor& tensor = part.model.tensors[t];
  Kind kind{tensor.shape,
            tensor.cut,
            part.first_matrix[t + 1] - part.first_matrix[t],
            {}};
  for (const Section& inner : tensor.sections) {
    const RowRuns& r = inner.rows;
    kind.sections.insert(kind.sections.end(),
                         {r.first, r.run, r.stride, r.count, inner.heads});
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

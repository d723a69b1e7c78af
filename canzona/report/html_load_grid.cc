#include <algorithm>
#include <array>

#include "canzona/base/text.h"
#include "canzona/report/html_loads.h"
#include "canzona/report/numbers.h"

namespace canzona {
namespace {

constexpr int32_t kMaxCells = 8192;
constexpr int32_t kMaxNarrowCells = 1024;
constexpr int32_t kMaxPlanes = 64;
constexpr int32_t kCellsPerLine = 128;
constexpr int32_t kCellsPerNarrowLine = 32;
constexpr double kGridLeft = 64;
constexpr double kWidestCell = 30;
constexpr double kTallestCell = 16;

// Upper ends of the classes, as multiples of the lower bound. The sixth is "at
// the bound": near enough to it that a reader need not care.
constexpr std::array kLimits = {0.0,  0.25, 0.5,  0.75, 0.95,
                                1.02, 1.1,  1.25, 1.5,  2.0};
constexpr size_t kAtBound = 5;

size_t heat_of(double load) {
  const auto* end = std::lower_bound(kLimits.begin(), kLimits.end(), load);
  return static_cast<size_t>(end - kLimits.begin());
}

// How ranks become cells: `homes` × `planes` of them share one.
struct Cells {
  int32_t homes = 1;
  int32_t planes = 1;
  int32_t per_stage = 1;  // cells from left to right
  int32_t rows = 1;       // cells downwards
  int32_t lines = 1;      // a stage takes several where homes are many
  int32_t per_line = 1;
};

int32_t ceil_div(int64_t a, int64_t b) {
  return static_cast<int32_t>((a + b - 1) / b);
}

Cells make_cells(const Mesh& mesh, bool narrow) {
  Cells cells;
  cells.planes = ceil_div(mesh.tp, kMaxPlanes);
  cells.rows = ceil_div(mesh.tp, cells.planes);
  const int64_t all = int64_t{mesh.pp} * mesh.homes() * cells.rows;
  cells.homes = std::min(mesh.homes(),
                         ceil_div(all, narrow ? kMaxNarrowCells : kMaxCells));
  cells.per_stage = ceil_div(mesh.homes(), cells.homes);
  cells.lines =
      ceil_div(cells.per_stage, narrow ? kCellsPerNarrowLine : kCellsPerLine);
  cells.per_line = ceil_div(cells.per_stage, cells.lines);
  return cells;
}

// The busiest rank of a cell.
int32_t busiest(const Mesh& mesh, const Cells& cells, int32_t stage,
                int32_t column, int32_t row, const std::vector<double>& loads) {
  int32_t best = mesh.rank(stage, column * cells.homes, row * cells.planes);
  for (int32_t h = column * cells.homes;
       h < std::min((column + 1) * cells.homes, mesh.homes()); ++h) {
    for (int32_t t = row * cells.planes;
         t < std::min((row + 1) * cells.planes, mesh.tp); ++t) {
      const int32_t rank = mesh.rank(stage, h, t);
      if (loads[static_cast<size_t>(rank)] > loads[static_cast<size_t>(best)]) {
        best = rank;
      }
    }
  }
  return best;
}

class GridDrawing {
 public:
  GridDrawing(const Mesh& mesh, const LoadSeries& series, double bound,
              double width)
      : mesh_(mesh),
        series_(series),
        bound_(bound),
        cells_(make_cells(mesh, width < kDrawingWidth)),
        width_(std::min(kWidestCell, (width - kGridLeft) / cells_.per_line)),
        height_(std::min(kTallestCell, width_)),
        band_(height_ * cells_.rows + 20),
        svg_(width, band_ * cells_.lines * mesh.pp + 2,
             cat("Load of every rank, ", series.name)) {}

  LoadGrid draw() {
    for (int32_t stage = 0; stage < mesh_.pp; ++stage) {
      for (int32_t line = 0; line < cells_.lines; ++line) {
        draw_line(stage, line);
      }
    }
    return {svg_.take(), note()};
  }

 private:
  void draw_line(int32_t stage, int32_t line) {
    const double top = band_ * (stage * cells_.lines + line) + 16;
    const int32_t first = line * cells_.per_line;
    const int32_t end = std::min(first + cells_.per_line, cells_.per_stage);
    label(stage, first, end, top);
    for (int32_t row = 0; row < cells_.rows; ++row) {
      for (int32_t column = first; column < end; ++column) {
        draw_cell(stage, column, row, kGridLeft + width_ * (column - first),
                  top + height_ * row);
      }
    }
  }

  void draw_cell(int32_t stage, int32_t column, int32_t row, double x,
                 double y) {
    const int32_t rank =
        busiest(mesh_, cells_, stage, column, row, series_.loads);
    const double load = series_.loads[static_cast<size_t>(rank)];
    svg_.rect({x, y, width_, height_}, cat("cell heat", heat_of(load / bound_)),
              cat(rank_title(mesh_, rank), ": ",
                  load > 0 ? ratio_text(load) + " × mean" : "idle"),
              cat("rank:", rank));
  }

  void label(int32_t stage, int32_t first, int32_t end, double top) {
    const int32_t every = width_ >= 16 ? 4 : width_ >= 8 ? 8 : 16;
    for (int32_t column = first; column < end; column += every) {
      svg_.text(kGridLeft + width_ * (column - first) + 1, top - 4, "start",
                std::to_string(column * cells_.homes));
    }
    svg_.text(kGridLeft - 8, top - 4, "end dim",
              mesh_.pp > 1 ? cat("stage ", stage) : "home");
    svg_.text(kGridLeft - 8, top + std::min(height_, 11.0), "end dim", "t 0");
    if (height_ * cells_.rows < 26) return;
    svg_.text(kGridLeft - 8, top + height_ * cells_.rows - 2, "end dim",
              cat("t ", mesh_.tp - 1));
  }

  std::string note() const {
    if (cells_.homes == 1 && cells_.planes == 1) return "";
    return cat("Each cell stands for ", cells_.homes * cells_.planes,
               " ranks and shows the busiest of them.");
  }

  const Mesh& mesh_;
  const LoadSeries& series_;
  double bound_;
  Cells cells_;
  double width_;
  double height_;
  double band_;
  Svg svg_;
};

}  // namespace

LoadGrid load_grid(const Mesh& mesh, const LoadSeries& series, double bound,
                   double width) {
  return GridDrawing(mesh, series, bound, width).draw();
}

std::vector<HeatClass> heat_classes() {
  std::vector<HeatClass> classes{{"heat0", "idle"}};
  for (size_t i = 1; i < kLimits.size(); ++i) {
    classes.push_back({cat("heat", i), i == kAtBound
                                           ? "at the bound"
                                           : fmt::format("≤ {}", kLimits[i])});
  }
  classes.push_back({cat("heat", kLimits.size()),
                     fmt::format("> {} × the bound", kLimits.back())});
  return classes;
}

}  // namespace canzona

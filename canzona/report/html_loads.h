// Drawings of the load of every rank; loads are multiples of the mean. `width`
// is that of the drawing.
#pragma once

#include <string>
#include <vector>

#include "canzona/report/html_chart.h"
#include "canzona/report/html_view.h"

namespace canzona {

// Ranks that are drawn as a bar each; more become a grid and a curve.
inline constexpr size_t kMaxBars = 64;

struct LoadSeries {
  std::string name;
  std::string css;
  std::vector<double> loads;  // per rank
};

// One bar per rank and series, side by side.
std::string load_bars(const Mesh& mesh, const std::vector<LoadSeries>& series,
                      const std::vector<Reference>& references,
                      double width = kDrawingWidth);

// One cell per rank: homes from left to right, tp downwards, stages as bands,
// coloured by load over `bound`: what lies above it holds up the step.
// Where a mesh is too large a cell stands for several ranks and shows the
// busiest; the note says so (empty otherwise).
struct LoadGrid {
  std::string svg;
  std::string note;
};
LoadGrid load_grid(const Mesh& mesh, const LoadSeries& series, double bound,
                   double width = kDrawingWidth);
// What the colours of the grid mean, from idle to overloaded.
struct HeatClass {
  std::string css;
  std::string text;
};
std::vector<HeatClass> heat_classes();

// Ranks sorted from the busiest to the least loaded, one line per series.
std::string load_curve(const std::vector<LoadSeries>& series,
                       const std::vector<Reference>& references,
                       double width = kDrawingWidth);

}  // namespace canzona

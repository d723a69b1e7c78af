// Curves over a common horizontal axis, named where they end; columns that tell
// the values under the pointer.
//
//   LineChart chart{.title = "Loss", .axis = Axis::kSteps, .curves = …};
//   std::string svg = draw(chart);
#pragma once

#include <string>
#include <vector>

#include "canzona/report/html_svg.h"
#include "canzona/report/runs/curves.h"

namespace canzona {

struct Curve {
  std::string name;
  std::string css;  // "curve s0"
  Points points;
  bool dots = false;    // a mark at every point
  bool probed = false;  // its values show under the pointer
  // Stands at its end, after its last value; empty: nothing does.
  std::string label = {};
};

struct LineChart {
  std::string title;
  std::string unit;  // of the vertical axis, "" for none
  Axis axis = Axis::kSteps;
  std::vector<Curve> curves;
  double width = kDrawingWidth;
  double height = 300;
  double right = 150;      // room for the labels at the end
  bool from_zero = false;  // the vertical axis begins at 0
  // Nothing above this value is drawn; 0: all is.
  double clip = 0;
  // How values are written: "4.123", "12.3K".
  std::string (*text)(double) = nullptr;
};

std::string draw(const LineChart& chart);

// Round numbers from `low` to `high`, about `count`.
std::vector<double> ticks_between(double low, double high, int count);

}  // namespace canzona

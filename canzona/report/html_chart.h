// The frame of a chart with a vertical axis that starts at 0: ticks, reference
// lines and their labels. Drawings add their own marks inside.
//
//   Chart chart("Load per rank", 240, 1.3);
//   chart.draw_axis({{0, "0"}, {1, "1"}});
//   chart.svg().rect({x, chart.y(load), 8, chart.bottom() - chart.y(load)}, …);
#pragma once

#include <string>
#include <vector>

#include "canzona/report/html_svg.h"

namespace canzona {

// A horizontal line across a chart, with its label.
struct Reference {
  double value = 0;
  std::string text;
  std::string css;
};

struct Tick {
  double value = 0;
  std::string text;
};

// Round multiples of 1 from 0 to `top`.
std::vector<Tick> plain_ticks(double top);
// Round numbers of bytes from 0 to `top`.
std::vector<Tick> byte_ticks(double top);

class Chart {
 public:
  // `top` is the largest value of the vertical axis; `below` the room for
  // labels under the horizontal one.
  Chart(std::string_view title, double height, double top, double below = 34,
        double width = kDrawingWidth);

  double left() const { return 58; }
  // Beside it is room for the labels of references.
  double right() const { return right_; }
  double bottom() const { return bottom_; }
  double width() const { return right() - left(); }
  double y(double value) const;

  void draw_axis(const std::vector<Tick>& ticks);
  void draw_references(const std::vector<Reference>& references);
  Svg& svg() { return svg_; }
  std::string take() { return svg_.take(); }

 private:
  double right_;
  double bottom_;
  double top_;
  Svg svg_;
};

// Positions of `count` equal slots across a chart, for marks one per rank.
struct ChartSlots {
  double left = 0;
  double width = 0;  // of one slot

  ChartSlots(const Chart& chart, size_t count);
  double at(double index) const { return left + width * index; }
};

}  // namespace canzona

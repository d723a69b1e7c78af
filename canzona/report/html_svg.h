// Drawings as SVG: shapes coloured by CSS class, so that they follow the
// page's light and dark colours, each with a <title> where it means something.
//
//   Svg svg(1040, 200, "Load per rank");
//   svg.rect({10, 20, 8, 100}, "c0", "rank 3: 1.02 × mean", "rank:3");
//   out.put("{}", Markup{svg.take()});
//
// One thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "canzona/report/html_text.h"

namespace canzona {

inline constexpr double kDrawingWidth = 1040;
// Of what is drawn a second time, for a narrow screen.
inline constexpr double kNarrowDrawing = 400;

struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

// A coordinate, to a tenth (or hundredth) of a pixel, as short as possible.
std::string coordinate(double value, int decimals = 1);

// The width that a text takes at most in a drawing, in its units.
double text_width(std::string_view text);

class Svg {
 public:
  Svg(double width, double height, std::string_view title);

  // `query`: what the table of tensors shows when the shape is clicked.
  void rect(const Box& box, std::string_view css, std::string_view title = "",
            std::string_view query = "");
  void line(double x1, double y1, double x2, double y2, std::string_view css);
  void path(std::string_view d, std::string_view css,
            std::string_view title = "");
  // css: "start", "middle" or "end" sets the anchor; more classes may follow.
  void text(double x, double y, std::string_view css, std::string_view text);

  std::string take();

 private:
  Html out_;
};

// About `count` round numbers from 0 up to at most `top`.
std::vector<double> round_ticks(double top, int count);

// A label beside a horizontal line.
struct SideLabel {
  double y = 0;
  std::string text;
  std::string css;
};

// Moves labels apart so that none overlaps another; order by height is kept.
void spread_labels(std::vector<SideLabel>& labels, double gap);

}  // namespace canzona

#include "canzona/report/html_svg.h"

#include <algorithm>
#include <cmath>

#include "canzona/report/terminal_style.h"

namespace canzona {

std::string coordinate(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, decimals);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text == "-0" ? "0" : text;
}

double text_width(std::string_view text) {
  // Letters of 11.5 pixels are narrower on the average, digits as wide.
  constexpr double kOfCharacter = 6.8;
  return kOfCharacter * static_cast<double>(display_width(text));
}

Svg::Svg(double width, double height, std::string_view title) {
  out_.put("<svg viewBox=\"0 0 {0} {1}\" role=\"img\"><title>{2}</title>",
           coordinate(width), coordinate(height), title);
}

void Svg::rect(const Box& box, std::string_view css, std::string_view title,
               std::string_view query) {
  // A path takes half the bytes of a <rect>, and a page has thousands.
  const std::string width = coordinate(box.width, 2);
  out_.put("<path d=\"M{} {}h{}v{}h-{}z\" class=\"{}\"", coordinate(box.x, 2),
           coordinate(box.y), width, coordinate(box.height), width, css);
  if (!query.empty()) out_.put(" data-q=\"{}\"", query);
  if (title.empty()) {
    out_.add("/>");
  } else {
    out_.put("><title>{}</title></path>", title);
  }
}

void Svg::line(double x1, double y1, double x2, double y2,
               std::string_view css) {
  out_.put("<path d=\"M{} {}L{} {}\" class=\"{}\"/>", coordinate(x1),
           coordinate(y1), coordinate(x2), coordinate(y2), css);
}

void Svg::path(std::string_view d, std::string_view css,
               std::string_view title) {
  out_.put("<path d=\"{}\" class=\"{}\"><title>{}</title></path>", d, css,
           title);
}

void Svg::text(double x, double y, std::string_view css,
               std::string_view text) {
  out_.put("<text x=\"{}\" y=\"{}\" class=\"{}\">{}</text>", coordinate(x),
           coordinate(y), css, text);
}

std::string Svg::take() {
  out_.add("</svg>");
  return out_.take();
}

std::vector<double> round_ticks(double top, int count) {
  if (!(top > 0) || !std::isfinite(top) || count < 1) return {0};
  const double raw = top / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = 10 * power;
  for (double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (factor * power >= raw) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  for (int i = 0; i * step <= top * (1 + 1e-9); ++i) ticks.push_back(i * step);
  return ticks;
}

void spread_labels(std::vector<SideLabel>& labels, double gap) {
  std::stable_sort(
      labels.begin(), labels.end(),
      [](const SideLabel& a, const SideLabel& b) { return a.y < b.y; });
  // Lines lie near the bottom of the room above them, so labels move upwards.
  for (size_t i = labels.size(); i-- > 1;) {
    labels[i - 1].y = std::min(labels[i - 1].y, labels[i].y - gap);
  }
}

}  // namespace canzona

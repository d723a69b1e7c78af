#include "canzona/report/html.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/digest.h"
#include "canzona/base/text.h"
#include "canzona/report/numbers.h"
#include "canzona/report/terminal.h"

namespace canzona {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

std::string_view escape_of(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    case '\t':
    case '\n':
      return " ";
    default:
      return {};
  }
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_char(text, i);
    const std::string_view escape =
        c.valid && c.length == 1 ? escape_of(text[i]) : std::string_view{};
    if (!escape.empty())
      out += escape;
    else if (!c.valid || c.code < 0x20 || c.code == 0x7F)
      out += kReplacement;
    else
      out += text.substr(i, c.length);
    i += c.length;
  }
  return out;
}

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

void Svg::rect(const SvgBox& box, std::string_view css, std::string_view title,
               std::string_view query) {
  // A path takes half the bytes of a <rect>, and a page has thousands.
  const std::string width = coordinate(box.width, 2);
  out_.put("<path d=\"M{} {}h{}v{}h-{}z\" class=\"{}\"", coordinate(box.x, 2),
           coordinate(box.y), width, coordinate(box.height), width, css);
  if (!query.empty()) out_.put(" data-q=\"{}\"", query);
  if (title.empty())
    out_.add("/>");
  else
    out_.put("><title>{}</title></path>", title);
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
  for (size_t i = labels.size(); i-- > 1;)
    labels[i - 1].y = std::min(labels[i - 1].y, labels[i].y - gap);
}

namespace {

constexpr double kAbove = 12;
constexpr double kWidestSlot = 104;
constexpr double kSide = 134;
constexpr double kNarrowSide = 126;

}  // namespace

std::vector<Tick> plain_ticks(double top) {
  std::vector<Tick> ticks;
  for (double value : round_ticks(top, 5))
    ticks.push_back({value, fmt::format("{:.6g}", value)});
  return ticks;
}

std::vector<Tick> byte_ticks(double top) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double unit = 1;
  size_t name = 0;
  while (top / unit >= 1024 && name + 1 < std::size(kUnits)) {
    unit *= 1024;
    ++name;
  }
  std::vector<Tick> ticks;
  for (double value : round_ticks(top / unit, 5)) {
    ticks.push_back(
        {value * unit,
         value > 0 ? fmt::format("{:.6g} {}", value, kUnits[name]) : "0"});
  }
  return ticks;
}

Chart::Chart(std::string_view title, double height, double top, double below,
             double width)
    : right_(width - (width < kDrawingWidth ? kNarrowSide : kSide)),
      bottom_(kAbove + height),
      top_(top > 0 ? top : 1),
      svg_(width, bottom_ + below, title) {}

double Chart::y(double value) const {
  const double share = std::clamp(value / top_, 0.0, 1.0);
  return bottom_ - share * (bottom_ - kAbove);
}

void Chart::draw_axis(const std::vector<Tick>& ticks) {
  for (const Tick& tick : ticks) {
    svg_.line(left(), y(tick.value), right(), y(tick.value),
              tick.value > 0 ? "grid" : "axis");
    svg_.text(left() - 6, y(tick.value) + 4, "end", tick.text);
  }
}

void Chart::draw_references(const std::vector<Reference>& references) {
  std::vector<SideLabel> labels;
  for (const Reference& reference : references) {
    const double at = y(reference.value);
    svg_.line(left(), at, right(), at, reference.css);
    labels.push_back({at + 4, reference.text, reference.css});
  }
  spread_labels(labels, 14);
  for (const SideLabel& label : labels)
    svg_.text(right() + 8, label.y, "start " + label.css, label.text);
}

ChartSlots::ChartSlots(const Chart& chart, size_t count) {
  const double wanted = chart.width() / static_cast<double>(count);
  width = std::min(wanted, kWidestSlot);
  const double used = width * static_cast<double>(count);
  left = chart.left() + (chart.width() - used) / 2;
}

namespace {

int hex_value(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

// 64 hexadecimal digits as base64, the form in which a content security
// policy names a script.
std::string base64_of_hex(std::string_view hex) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  int held = 0;
  for (char c : hex) {
    bits = (bits << 4) | static_cast<unsigned>(hex_value(c));
    held += 4;
    if (held < 6) continue;
    held -= 6;
    out += kAlphabet[(bits >> held) & 63];
  }
  if (held > 0) out += kAlphabet[(bits << (6 - held)) & 63];
  while (out.size() % 4 != 0) out += '=';
  return out;
}

// Nothing may be loaded, and of scripts only our own may run: were a name ever
// to escape its text, the browser would still refuse to run it.
void put_policy(Html& out, std::string_view script) {
  out.put(
      "<meta http-equiv=\"Content-Security-Policy\" content=\""
      "default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;; "
      "script-src &#39;sha256-{}&#39;; base-uri &#39;none&#39;; "
      "form-action &#39;none&#39;\">\n",
      Markup{base64_of_hex(sha256_hex(script))});
}

// Patterns that several drawings use.
void put_patterns(Html& out) {
  out.add(
      "<svg class=\"defs\" aria-hidden=\"true\"><defs>"
      "<pattern id=\"hatch\" width=\"6\" height=\"6\" "
      "patternUnits=\"userSpaceOnUse\" "
      "patternTransform=\"rotate(45)\">"
      "<rect class=\"hatch-ground\" width=\"6\" height=\"6\"/>"
      "<path class=\"hatch-line\" d=\"M0 0V6\"/></pattern>"
      "</defs></svg>\n");
}

}  // namespace

void begin_page(Html& out, const Page& page) {
  out.add(
      "<!doctype html>\n<html lang=\"en\"><head>"
      "<meta charset=\"utf-8\">\n");
  put_policy(out, page.script);
  out.put(
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<meta name=\"color-scheme\" "
      "content=\"light dark\">\n<title>{} · Canzona</title>\n"
      "<style>\n{}{}</style></head>\n<body>\n",
      page.title, Markup{html_style()}, Markup{page.style});
  put_patterns(out);
}

void end_page(Html& out, const Page& page) {
  out.put("</main>\n<footer>{}</footer>\n<script>{}</script>\n</body></html>\n",
          page.footer, Markup{page.script});
}

void begin_section(Html& out, std::string_view id, std::string_view heading) {
  out.put("<section id=\"{}\"><h2>{}</h2>\n", id, heading);
}

void end_section(Html& out) { out.add("</section>\n"); }

void put_figure(Html& out, std::string_view svg, std::string_view caption) {
  out.put("<figure><div class=\"scroll\">{}</div>", Markup{svg});
  if (!caption.empty()) out.put("<figcaption>{}</figcaption>", caption);
  out.add("</figure>\n");
}

void put_figure(Html& out, std::string_view wide, std::string_view narrow,
                std::string_view caption) {
  out.put(
      "<figure><div class=\"scroll broad\">{}</div>"
      "<div class=\"narrow\">{}</div>",
      Markup{wide}, Markup{narrow});
  if (!caption.empty()) out.put("<figcaption>{}</figcaption>", caption);
  out.add("</figure>\n");
}

void put_legend(Html& out, const std::vector<LegendEntry>& entries) {
  out.add("<ul class=\"legend\">");
  for (const LegendEntry& entry : entries)
    out.put("<li><i class=\"{}\"></i>{}</li>", entry.css, entry.text);
  out.add("</ul>\n");
}

void put_tile(Html& out, std::string_view label, std::string_view figure,
              std::string_view unit, const std::vector<std::string>& notes) {
  out.put("<div class=\"tile\"><h3>{}</h3><p class=\"figure\">{}", label,
          figure);
  if (!unit.empty()) out.put(" <small>{}</small>", unit);
  out.add("</p>");
  for (const std::string& note : notes) out.put("<p>{}</p>", note);
  out.add("</div>\n");
}

void put_fact(Html& out, std::string_view name, std::string_view value) {
  if (value.empty()) return;
  out.put("<div><dt>{}</dt><dd>{}</dd></div>\n", name, value);
}

}  // namespace canzona

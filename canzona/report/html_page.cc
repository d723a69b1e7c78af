#include "canzona/report/html_page.h"

#include "canzona/base/digest.h"
#include "canzona/report/html_style.h"

namespace canzona {
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
  for (const LegendEntry& entry : entries) {
    out.put("<li><i class=\"{}\"></i>{}</li>", entry.css, entry.text);
  }
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

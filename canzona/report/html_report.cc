#include "canzona/report/html_report.h"

#include <array>

#include "canzona/base/digest.h"
#include "canzona/base/text.h"
#include "canzona/report/html_script.h"
#include "canzona/report/html_sections.h"
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
void put_policy(Html& out) {
  out.put(
      "<meta http-equiv=\"Content-Security-Policy\" content=\""
      "default-src &#39;none&#39;; style-src &#39;unsafe-inline&#39;; "
      "script-src &#39;sha256-{}&#39;; base-uri &#39;none&#39;; "
      "form-action &#39;none&#39;\">\n",
      Markup{base64_of_hex(sha256_hex(html_script()))});
}

void put_navigation(Html& out, const View& view) {
  out.add(
      "<nav><a href=\"#loads\">Load</a><a href=\"#buckets\">Buckets</a>"
      "<a href=\"#micro-groups\">Micro-groups</a>"
      "<a href=\"#memory\">Memory</a><a href=\"#wire\">Bytes</a>"
      "<a href=\"#tensors\">Tensors</a>");
  if (view.several()) out.add("<a href=\"#strategies\">Strategies</a>");
  out.add("<a href=\"#words\">How to read it</a></nav>\n");
}

void put_head(Html& out, const View& view) {
  const Plan& plan = view.plan().plan;
  out.add(
      "<!doctype html>\n<html lang=\"en\"><head>"
      "<meta charset=\"utf-8\">\n");
  put_policy(out);
  out.put(
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<meta name=\"color-scheme\" "
      "content=\"light dark\">\n<title>{} on {}, {} · Canzona</title>\n"
      "<style>\n{}</style></head>\n<body>\n",
      plan.model.name, to_string(plan.mesh), plan.rule, Markup{html_style()});
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

void begin_section(Html& out, std::string_view id, std::string_view heading) {
  out.put("<section id=\"{}\"><h2>{}</h2>\n", id, heading);
}

void end_section(Html& out) { out.add("</section>\n"); }

void put_figure(Html& out, std::string_view svg, std::string_view caption) {
  out.put("<figure><div class=\"scroll\">{}</div>", Markup{svg});
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

std::string html_report(const std::vector<ReportPlan>& plans) {
  const View view(plans);
  Html out;
  put_head(out, view);
  put_patterns(out);
  add_headline(out, view);
  put_navigation(out, view);
  out.add("<main>\n");
  add_strategies(out, view);
  add_loads(out, view);
  add_buckets(out, view);
  add_micro_groups(out, view);
  add_memory(out, view);
  add_wire(out, view);
  add_tensors(out, view);
  add_glossary(out);
  out.put(
      "</main>\n<footer>Made by Canzona from shapes alone; opens "
      "offline.</footer>\n<script>{}</script>\n</body></html>\n",
      Markup{html_script()});
  return out.take();
}

}  // namespace canzona

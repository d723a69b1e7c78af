#include "canzona/report/page.h"

#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::report {
namespace {

int hex_value(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

// Converts 64 hexadecimal digits to base64, the form in which a content
// security policy names a script.
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

// Returns the text that replaces {{name}} in page.html.
std::string_view content_of(std::string_view name, std::string_view json,
                            std::string_view script, std::string_view hash) {
  if (name == "script-hash") return hash;
  if (name == "style") return page_file("page.css");
  if (name == "report") return json;
  if (name == "script") return script;
  throw InternalError(cat("page.html: nothing is known for {{", name, "}}"));
}

}  // namespace

std::string make_page(std::string_view json,
                      std::initializer_list<std::string_view> scripts) {
  std::string script(page_file("format.js"));
  script += page_file("draw.js");
  for (const std::string_view name : scripts) script += page_file(name);
  // The script includes the line break after its opening tag.
  const std::string hash = base64_of_hex(sha256_hex("\n" + script));
  const std::string_view page = page_file("page.html");
  std::string out;
  out.reserve(page.size() + script.size() + json.size());
  size_t at = 0;
  for (size_t begin; (begin = page.find("{{", at)) != page.npos;) {
    const size_t end = page.find("}}", begin);
    out += page.substr(at, begin - at);
    out +=
        content_of(page.substr(begin + 2, end - begin - 2), json, script, hash);
    at = end + 2;
  }
  return out += page.substr(at);
}

}  // namespace canzona::report

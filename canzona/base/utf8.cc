#include "canzona/base/utf8.h"

namespace canzona {
namespace {

struct Form {
  size_t length;
  char32_t bits;     // of the first byte
  char32_t minimum;  // a smaller code is overlong
};

Form form_of(unsigned char first) {
  if (first < 0x80) return {1, first, 0};
  if (first >= 0xC2 && first < 0xE0) return {2, first & 0x1Fu, 0x80};
  if (first >= 0xE0 && first < 0xF0) return {3, first & 0x0Fu, 0x800};
  if (first >= 0xF0 && first < 0xF5) return {4, first & 0x07u, 0x10000};
  return {0, 0, 0};
}

bool is_code_point(char32_t code) {
  return code <= 0x10FFFF && !(code >= 0xD800 && code <= 0xDFFF);
}

}  // namespace

Utf8Char utf8_char(std::string_view text, size_t at) {
  const Form form = form_of(static_cast<unsigned char>(text[at]));
  if (form.length == 0 || text.size() - at < form.length) return {};
  char32_t code = form.bits;
  for (size_t i = 1; i < form.length; ++i) {
    const auto byte = static_cast<unsigned char>(text[at + i]);
    if ((byte & 0xC0) != 0x80) return {};
    code = (code << 6) | (byte & 0x3Fu);
  }
  if (code < form.minimum || !is_code_point(code)) return {};
  return {code, form.length, true};
}

}  // namespace canzona

// Finding one's way in UTF-8 that may be broken.
//
//   for (size_t i = 0; i < text.size();) {
//     const Utf8Char c = utf8_char(text, i);
//     if (c.valid) ...
//     i += c.length;
//   }
//
// Pure functions; any thread may call them.
#pragma once

#include <cstddef>
#include <string_view>

namespace canzona {

struct Utf8Char {
  char32_t code = 0;  // 0 if not valid
  size_t length = 1;  // bytes; 1 if not valid
  bool valid = false;
};

// The character that begins at byte `at` < text.size(). Not valid: a stray or
// missing continuation, an overlong form, a surrogate, above U+10FFFF.
Utf8Char utf8_char(std::string_view text, size_t at);

}  // namespace canzona

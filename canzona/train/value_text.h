// Numbers as text that reads back equal: 0.0003, 400000000, 1e-08.
#pragma once

#include <charconv>
#include <string>

namespace canzona {

inline std::string number_text(double number) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, number).ptr;
  return std::string(text, end);
}

}  // namespace canzona

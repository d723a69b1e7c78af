// The part of the Unicode character database that unicode.cc needs. The rows,
// sorted by code, are in generated/, which scripts/unicode_tables.py writes.
#pragma once

#include <cstdint>
#include <span>

namespace canzona {

struct CodeRange {
  char32_t first;
  char32_t last;
};

struct ClassRange {
  char32_t first;
  char32_t last;
  uint8_t combining_class;
};

// A character and the one or two that it stands for; Hangul syllables are
// computed instead.
struct Decomposition {
  char32_t code;
  char32_t first;
  char32_t second;  // 0: none
  bool composes;    // the pair composes to it again
};

std::span<const CodeRange> letter_ranges();
std::span<const CodeRange> number_ranges();
std::span<const ClassRange> combining_ranges();
std::span<const Decomposition> decompositions();

}  // namespace canzona

// Characters as tokenizers see them.
//
//   unicode_class(U'é');           // UnicodeClass::kLetter
//   std::string same = to_nfc(text);
//
// Letters and numbers are Unicode 16.0's \p{L} and \p{N}, spaces its \s, and
// the normal form is that of Unicode 9.0, as in the tokenizers library
// (scripts/unicode_tables.py). Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace canzona::data {

enum class UnicodeClass : uint8_t { kOther, kLetter, kNumber, kSpace };

// Requires a code point of at most U+10FFFF.
UnicodeClass unicode_class(char32_t code);

// Returns normalization form C. Bytes that are not UTF-8 are kept, and nothing
// is composed across them.
std::string to_nfc(std::string_view text);

void append_utf8(std::string& text, char32_t code);

// Makes text safe for a terminal when it arrives in pieces that may end inside
// a character: only whole characters are returned.
//
//   TextStream stream;
//   std::string shown = stream.add("\xC3");   // ""
//   shown = stream.add("\xA9");               // "é"
//   shown = stream.finish();                  // what was left incomplete
//
// Bytes that are not UTF-8, and control characters other than newline and tab,
// become U+FFFD. One thread at a time.
class TextStream {
 public:
  std::string add(std::string_view bytes);
  std::string finish();

 private:
  std::string take(bool all);

  std::string waiting_;
};

// The part of the Unicode character database that unicode.cc needs. The rows,
// sorted by code, are in generated/, which scripts/unicode_tables.py writes.

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

}  // namespace canzona::data

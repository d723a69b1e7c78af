// Small text helpers that messages, parsers and reports share.
//
//   throw UsageError(cat("tp=", tp, " does not divide the ", heads, " heads"));
//
// All functions are pure and may be called from any thread.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "canzona/base/error.h"

namespace canzona {

// One argument of cat() as text. It views texts and holds numbers, so it must
// not outlive the call. Any other type takes part by a function to_text(value)
// in its namespace.
class TextPiece {
 public:
  TextPiece(std::string_view text) : text_(text) {}
  TextPiece(const std::string& text) : text_(text) {}
  TextPiece(const char* text) : text_(text) {}
  TextPiece(char c) : text_(digits_, 1) { digits_[0] = c; }
  TextPiece(bool value) : TextPiece(value ? '1' : '0') {}
  template <std::signed_integral Integer>
  TextPiece(Integer value) {
    set_integer(value);
  }
  template <std::unsigned_integral Integer>
  TextPiece(Integer value) {
    set_unsigned(value);
  }
  // Prints six significant digits, as printf's %g does.
  TextPiece(double value);

  TextPiece(const TextPiece&) = delete;
  TextPiece& operator=(const TextPiece&) = delete;

  std::string_view text() const { return text_; }

 private:
  void set_integer(long long value);
  void set_unsigned(unsigned long long value);

  std::string_view text_;
  char digits_[32];
};

std::string cat_pieces(std::initializer_list<TextPiece> pieces);

// Passes a number or a text through, and converts anything else with its
// to_text().
template <class T>
decltype(auto) as_piece(const T& value) {
  if constexpr (std::convertible_to<const T&, TextPiece>) {
    return value;
  } else {
    return to_text(value);
  }
}

// Joins its arguments as text.
template <class... Args>
std::string cat(const Args&... args) {
  return cat_pieces({TextPiece(as_piece(args))...});
}

// "a,,b" → {"a", "", "b"}; an empty text gives one empty word.
std::vector<std::string> split_text(std::string_view text, char separator);
std::string join(const std::vector<std::string>& words,
                 std::string_view separator);

// "1 step", "2 steps", "3 matrices", "4 micro-batches".
std::string counted_text(int64_t count, std::string_view thing);
// "matrix" → "matrices".
std::string plural_of(std::string_view thing);

// `text` in single quotes, control characters and broken UTF-8 replaced by '?',
// cut to `limit` characters: safe to print on a terminal wherever it came from.
//
// This is an object, not a function, because argument-dependent lookup would
// find std::quoted of <iomanip> for a std::string and prefer it.
struct Quoted {
  std::string operator()(std::string_view text, size_t limit = 120) const;
};
inline constexpr Quoted quoted;

// `text` without quotes, made safe for a terminal in the same way.
std::string printable(std::string_view text, size_t limit = 400);

// Returns the known word with the smallest edit distance to `word`, the first
// if several are equal; empty if none is close enough to be a likely typo.
std::string nearest(std::string_view word,
                    const std::vector<std::string>& known);

// Returns " (did you mean 'x'?)" or "".
std::string did_you_mean(std::string_view word,
                         const std::vector<std::string>& known);

// Reads a whole decimal integer in [low, high]; throws UsageError naming
// `what`.
int64_t parse_integer(std::string_view text, int64_t low, int64_t high,
                      std::string_view what);

// Reads a finite decimal number in [low, high]; throws UsageError naming
// `what`.
double parse_number(std::string_view text, double low, double high,
                    std::string_view what);

// "1600MiB", "64GiB", "2GB", "1.5 GiB", "123" → bytes. Throws UsageError naming
// `what`.
int64_t parse_bytes(std::string_view text, std::string_view what);

// "400GB/s", "1.5GiB/s", "400Gb/s" (bits) → bytes per second, from 1 to
// kMostBandwidth.
inline constexpr double kMostBandwidth = 1e30;
double parse_bandwidth(std::string_view text, std::string_view what);

// "20us", "1.5ms", "2s", "3ns" → seconds, not negative.
double parse_duration(std::string_view text, std::string_view what);

// 1610612736 → "1.50 GiB".
std::string human_bytes(int64_t bytes);
// 12345678 → "12.3M"; used for elements.
std::string human_count(double count);
// 0.0123 → "12.3 ms".
std::string human_seconds(double seconds);

// Compares so that runs of digits count as numbers: "layer.9" < "layer.10". The
// order is total: one of two different texts is always less.
bool natural_less(std::string_view a, std::string_view b);

// Returns true if `text` matches `pattern`, in which '*' stands for any
// sequence of bytes and '?' for one byte.
bool matches_pattern(std::string_view text, std::string_view pattern);

// Walks through UTF-8 that may be invalid.
//
//   for (size_t i = 0; i < text.size();) {
//     const Utf8Char c = utf8_char(text, i);
//     if (c.valid) ...
//     i += c.length;
//   }
//
// The functions are pure; any thread may call them.

struct Utf8Char {
  char32_t code = 0;  // 0 if not valid
  size_t length = 1;  // bytes; 1 if not valid
  bool valid = false;
};

// Returns the character that begins at byte `at` < text.size(). Invalid are a
// stray or missing continuation, an overlong form, a surrogate, and codes above
// U+10FFFF.
Utf8Char utf8_char(std::string_view text, size_t at);

// Enumerations and their names, from one table per enumeration.
//
//   constexpr EnumNames<Cut, 3> kCuts{{{Cut::kNone, "none"}, …}};
//   std::string_view name = name_of(kCuts, cut);
//   Cut cut = value_of(kCuts, "rows", "tp cut");
//
// value_of() throws UsageError, with the nearest name, for an unknown one.
template <class Enum, size_t N>
using EnumNames = std::array<std::pair<Enum, const char*>, N>;

template <class Enum, size_t N>
std::string_view name_of(const EnumNames<Enum, N>& names, Enum value) {
  for (const auto& [known, name] : names) {
    if (known == value) return name;
  }
  return "?";
}

template <class Enum, size_t N>
Enum value_of(const EnumNames<Enum, N>& names, std::string_view text,
              std::string_view what) {
  std::vector<std::string> words;
  for (const auto& [value, name] : names) {
    if (text == name) return value;
    words.emplace_back(name);
  }
  throw UsageError(cat(what, " ", quoted(text), ": expected ", join(words, "|"),
                       did_you_mean(text, words)));
}

}  // namespace canzona

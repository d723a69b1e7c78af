#include "canzona/base/text.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <numeric>

#include "canzona/base/utf8.h"

namespace canzona {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

// Control characters could move the cursor or start an escape sequence;
// direction marks could make a text read as another.
bool is_safe(const Utf8Char& c) {
  const bool control = c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0);
  const bool line_break = c.code == 0x2028 || c.code == 0x2029;
  const bool direction = c.code == 0x200E || c.code == 0x200F ||
                         (c.code >= 0x202A && c.code <= 0x202E) ||
                         (c.code >= 0x2066 && c.code <= 0x2069);
  return c.valid && !control && !line_break && !direction;
}

// Insertions, deletions, substitutions and swaps of neighbours, each once per
// place ("optimal string alignment"), in letters regardless of case.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1);
  std::vector<size_t> above(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const char x = lower(a[i - 1]);
      const char y = lower(b[j - 1]);
      row[j] = std::min(
          {above[j] + 1, row[j - 1] + 1, above[j - 1] + (x == y ? 0 : 1)});
      if (i > 1 && j > 1 && x == lower(b[j - 2]) && lower(a[i - 2]) == y) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before.swap(above);
    above.swap(row);
  }
  return above.back();
}

// The run of digits that begins at `at`.
std::string_view digits_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return text.substr(at, end - at);
}

// Runs of digits as numbers of any length: -1, 0 or 1.
int compare_digits(std::string_view a, std::string_view b) {
  a.remove_prefix(std::min(a.find_first_not_of('0'), a.size()));
  b.remove_prefix(std::min(b.find_first_not_of('0'), b.size()));
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  const int order = a.compare(b);
  return (order > 0) - (order < 0);
}

}  // namespace

TextPiece::TextPiece(double value) {
  const auto end = std::to_chars(std::begin(digits_), std::end(digits_), value,
                                 std::chars_format::general, 6);
  text_ = {digits_, size_t(end.ptr - digits_)};
}

void TextPiece::set_integer(long long value) {
  const auto end = std::to_chars(std::begin(digits_), std::end(digits_), value);
  text_ = {digits_, size_t(end.ptr - digits_)};
}

void TextPiece::set_unsigned(unsigned long long value) {
  const auto end = std::to_chars(std::begin(digits_), std::end(digits_), value);
  text_ = {digits_, size_t(end.ptr - digits_)};
}

std::string cat_pieces(std::initializer_list<TextPiece> pieces) {
  size_t size = 0;
  for (const TextPiece& piece : pieces) size += piece.text().size();
  std::string joined;
  joined.reserve(size);
  for (const TextPiece& piece : pieces) joined += piece.text();
  return joined;
}

std::vector<std::string> split_text(std::string_view text, char separator) {
  std::vector<std::string> words;
  size_t begin = 0;
  for (size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator, begin)) {
    words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  words.emplace_back(text.substr(begin));
  return words;
}

std::string join(const std::vector<std::string>& words,
                 std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += separator;
    text += words[i];
  }
  return text;
}

std::string printable(std::string_view text, size_t limit) {
  std::string safe;
  size_t num_chars = 0;
  for (size_t i = 0; i < text.size(); ++num_chars) {
    if (num_chars == limit) return safe + "...";
    const Utf8Char c = utf8_char(text, i);
    if (is_safe(c)) {
      safe += text.substr(i, c.length);
    } else {
      safe += '?';
    }
    i += c.length;
  }
  return safe;
}

std::string Quoted::operator()(std::string_view text, size_t limit) const {
  return "'" + printable(text, limit) + "'";
}

std::string nearest(std::string_view word,
                    const std::vector<std::string>& known) {
  const size_t threshold = std::max<size_t>(2, word.size() / 3);
  size_t best_distance = threshold + 1;
  std::string best;
  for (const std::string& candidate : known) {
    const auto [shorter, longer] = std::minmax({word.size(), candidate.size()});
    if (longer - shorter > threshold) continue;
    const size_t distance = edit_distance(word, candidate);
    // A distance as long as the word means that nothing of it was kept.
    if (distance < best_distance && distance < longer) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word,
                         const std::vector<std::string>& known) {
  const std::string guess = nearest(word, known);
  return guess.empty() ? "" : cat(" (did you mean ", quoted(guess), "?)");
}

// Texts are compared token by token, a token being a run of digits or one
// other byte. Digits are neighbours in ASCII, so another byte is before or
// after all numbers and the order is total; "1" and "01" are told apart last.
bool natural_less(std::string_view a, std::string_view b) {
  size_t i = 0;
  size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string_view x = digits_at(a, i);
      const std::string_view y = digits_at(b, j);
      if (const int order = compare_digits(x, y)) return order < 0;
      i += x.size();
      j += y.size();
    } else {
      const auto x = static_cast<unsigned char>(a[i++]);
      const auto y = static_cast<unsigned char>(b[j++]);
      if (x != y) return x < y;
    }
  }
  if (i < a.size() || j < b.size()) return i == a.size();
  return a < b;
}

// On a mismatch the last '*' takes one character more; earlier ones need not
// be tried again, so the time is at most the product of the lengths.
bool matches_pattern(std::string_view text, std::string_view pattern) {
  size_t t = 0;
  size_t p = 0;
  size_t star = std::string_view::npos;
  size_t star_end = 0;  // where the text taken by the last '*' ends
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_end = t;
    } else if (p < pattern.size() &&
               (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_end;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

}  // namespace canzona

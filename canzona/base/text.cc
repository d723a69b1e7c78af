#include "canzona/base/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <numeric>
#include <span>

namespace canzona {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

char lower(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

// Control characters could move the cursor or start an escape sequence;
// direction marks could make a text read as a different one.
bool is_safe(const Utf8Char& c) {
  const bool control = c.code < 0x20 || (c.code >= 0x7F && c.code < 0xA0);
  const bool line_break = c.code == 0x2028 || c.code == 0x2029;
  const bool direction = c.code == 0x200E || c.code == 0x200F ||
                         (c.code >= 0x202A && c.code <= 0x202E) ||
                         (c.code >= 0x2066 && c.code <= 0x2069);
  return c.valid && !control && !line_break && !direction;
}

// Counts insertions, deletions, substitutions and swaps of neighbours, each
// once per position ("optimal string alignment"), ignoring case.
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

// Returns the digits that begin at `at`.
std::string_view digits_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  return text.substr(at, end - at);
}

// Compares digit strings of any length as numbers: -1, 0 or 1.
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

std::string plural_of(std::string_view thing) {
  if (thing == "matrix") return "matrices";
  return cat(thing, thing.ends_with("ch") ? "es" : "s");
}

std::string counted_text(int64_t count, std::string_view thing) {
  return cat(count, " ", count == 1 ? std::string(thing) : plural_of(thing));
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
    // A distance as long as the word means that no character was kept.
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

// Compares token by token, a token being a sequence of digits or one other
// byte. Digits are neighbours in ASCII, so another byte is before or after all
// numbers and the order is total; "1" and "01" are told apart last.
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

// On a mismatch the last '*' takes one more character; earlier ones need not be
// tried again, so the time is at most the product of the lengths.
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

namespace {

struct Form {
  size_t length;
  char32_t bits;     // from the first byte
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

namespace {

// Reads and writes numbers with units.

struct Unit {
  std::string_view name;
  double factor;
};

// "GB" is 10^9 bytes, "GiB" 2^30; no unit means bytes. All are exact as
// doubles.
constexpr auto kByteUnits = std::to_array<Unit>({
    {"", 1},
    {"B", 1},
    {"KB", 1e3},
    {"kB", 1e3},
    {"MB", 1e6},
    {"GB", 1e9},
    {"TB", 1e12},
    {"PB", 1e15},
    {"KiB", 1024.0},
    {"MiB", 1048576.0},
    {"GiB", 1073741824.0},
    {"TiB", 1099511627776.0},
    {"PiB", 1125899906842624.0},
});

// "GB/s" counts bytes, "Gb/s" and "Gbit/s" bits.
constexpr auto kBandwidthUnits = std::to_array<Unit>({
    {"B/s", 1},           {"KB/s", 1e3},        {"kB/s", 1e3},
    {"MB/s", 1e6},        {"GB/s", 1e9},        {"TB/s", 1e12},
    {"KiB/s", 1024.0},    {"MiB/s", 1048576.0}, {"GiB/s", 1073741824.0},
    {"TiB/s", 0x1p40},    {"b/s", 1.0 / 8},     {"Kb/s", 1e3 / 8},
    {"kb/s", 1e3 / 8},    {"Mb/s", 1e6 / 8},    {"Gb/s", 1e9 / 8},
    {"Tb/s", 1e12 / 8},   {"Mbit/s", 1e6 / 8},  {"Gbit/s", 1e9 / 8},
    {"Tbit/s", 1e12 / 8},
});

// Durations are divided, because 1e-6 is not exact but 1e6 is.
constexpr auto kDurationUnits = std::to_array<Unit>({
    {"h", 1.0 / 3600},
    {"min", 1.0 / 60},
    {"s", 1},
    {"ms", 1e3},
    {"us", 1e6},
    {"µs", 1e6},
    {"ns", 1e9},
});

[[noreturn]] void refuse(std::string_view what, std::string_view text,
                         const std::string& expected) {
  throw UsageError(cat(what, " is ", quoted(text), ", expected ", expected));
}

struct NumberAndUnit {
  double number;
  double factor;
};

std::string_view without_leading_spaces(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(' '), text.size()));
}

// Reads "1.5 GiB" with one of `units`; the number must be finite and not
// negative.
NumberAndUnit read_with_unit(std::string_view text, std::span<const Unit> units,
                             std::string_view what,
                             const std::string& expected) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || !std::isfinite(number) || std::signbit(number)) {
    refuse(what, text, expected);
  }
  const std::string_view name = without_leading_spaces(
      text.substr(static_cast<size_t>(stop - text.data())));
  const auto unit = std::ranges::find(units, name, &Unit::name);
  if (unit == units.end()) refuse(what, text, expected);
  return {number, unit->factor};
}

std::string fixed(double number, int decimals) {
  std::array<char, 400> buffer;  // 1e308 has 309 digits
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), number,
                    std::chars_format::fixed, decimals);
  return {buffer.data(), end};
}

// Prints three significant digits: 1.23, 12.3, 123, 1234.
std::string three_digits(double number) {
  const double size = std::abs(number);
  return fixed(number, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

}  // namespace

int64_t parse_integer(std::string_view text, int64_t low, int64_t high,
                      std::string_view what) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < low || number > high) {
    refuse(what, text, cat("an integer from ", low, " to ", high));
  }
  return number;
}

double parse_number(std::string_view text, double low, double high,
                    std::string_view what) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  // Written so that NaN is refused too.
  const bool inside = number >= low && number <= high;
  if (error != std::errc() || stop != end || !std::isfinite(number) ||
      !inside) {
    refuse(what, text, cat("a number from ", low, " to ", high));
  }
  return number;
}

int64_t parse_bytes(std::string_view text, std::string_view what) {
  static const std::string expected =
      "bytes such as 1600MiB, 1.5GiB, 2GB or 4096, below 2^63";
  // A plain number may have more digits than a double holds.
  int64_t plain = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, plain);
  if (error == std::errc() && stop == end && plain >= 0) return plain;

  const auto [number, factor] =
      read_with_unit(text, kByteUnits, what, expected);
  const double bytes = std::round(number * factor);
  if (!(bytes < 0x1p63)) refuse(what, text, expected);
  return static_cast<int64_t>(bytes);
}

double parse_bandwidth(std::string_view text, std::string_view what) {
  static const std::string expected =
      "a bandwidth of 1B/s to 1e30B/s, such as 400GB/s (bytes) or 400Gb/s "
      "(bits)";
  const auto [number, factor] =
      read_with_unit(text, kBandwidthUnits, what, expected);
  const double bandwidth = number * factor;
  if (!(bandwidth >= 1 && bandwidth <= kMostBandwidth)) {
    refuse(what, text, expected);
  }
  return bandwidth;
}

double parse_duration(std::string_view text, std::string_view what) {
  static const std::string expected =
      "a duration such as 20us, 1.5ms, 2s or 10min";
  // Thirty years, which fit 64 bits as nanoseconds.
  constexpr double kMostSeconds = 1e9;
  const auto [number, factor] =
      read_with_unit(text, kDurationUnits, what, expected);
  const double seconds = number / factor;
  if (!(seconds <= kMostSeconds)) refuse(what, text, expected + ", up to 1e9s");
  return seconds;
}

std::string human_bytes(int64_t bytes) {
  constexpr std::array kNames = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double amount = static_cast<double>(bytes);
  if (std::abs(amount) < 1024) return cat(bytes, " B");
  size_t unit = 0;
  // 1023.995 would be printed as 1024.00.
  for (amount /= 1024; std::abs(amount) >= 1023.995; amount /= 1024) ++unit;
  return cat(fixed(amount, 2), " ", kNames[unit]);
}

std::string human_count(double count) {
  constexpr std::array kNames = {"", "K", "M", "B", "T"};
  const bool whole = count == std::floor(count);
  if (std::abs(count) < 999.5 && whole) return fixed(count, 0);
  size_t unit = 0;
  for (; std::abs(count) >= 999.5 && unit + 1 < kNames.size(); ++unit) {
    count /= 1000;
  }
  return three_digits(count) + kNames[unit];
}

std::string human_seconds(double seconds) {
  const double size = std::abs(seconds);
  if (size == 0) return "0 s";
  if (size < 999.5e-9) return three_digits(seconds * 1e9) + " ns";
  if (size < 999.5e-6) return three_digits(seconds * 1e6) + " us";
  if (size < 999.5e-3) return three_digits(seconds * 1e3) + " ms";
  return three_digits(seconds) + " s";
}

}  // namespace canzona

// The part of text.h that reads and writes numbers with units.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

// "GB" is 10^9 bytes, "GiB" 2^30; no unit means bytes. Exact as doubles.
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

// Durations divide, because 1e-6 is not exact but 1e6 is.
constexpr auto kDurationUnits = std::to_array<Unit>({
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

// Reads "1.5 GiB" with one of `units`; the number is finite and not negative.
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

// Three digits that matter: 1.23, 12.3, 123, 1234.
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
      "a bandwidth above 0 such as 400GB/s (bytes) or 400Gb/s (bits)";
  const auto [number, factor] =
      read_with_unit(text, kBandwidthUnits, what, expected);
  const double bandwidth = number * factor;
  if (!(bandwidth > 0) || !std::isfinite(bandwidth)) {
    refuse(what, text, expected);
  }
  return bandwidth;
}

double parse_duration(std::string_view text, std::string_view what) {
  const auto [number, factor] = read_with_unit(
      text, kDurationUnits, what, "a duration such as 20us, 1.5ms or 2s");
  return number / factor;
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

#include "canzona/conformance/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "canzona/base/check.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr double kNotANumber = std::numeric_limits<double>::quiet_NaN();

std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", value);
  return text;
}

}  // namespace

double deviation(std::span<const double> got,
                 std::span<const double> expected) {
  CANZONA_CHECK_EQ(got.size(), expected.size(), "elements to compare");
  double largest = 0;
  double furthest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double distance = std::abs(got[i] - expected[i]);
    if (std::isnan(distance)) return kNotANumber;
    furthest = std::max(furthest, distance);
    largest = std::max(largest, std::abs(expected[i]));
  }
  if (largest == 0) return furthest == 0 ? 0 : kInfinite;
  return furthest / largest;
}

void match_column_signs(std::vector<double>& got,
                        std::span<const double> expected, int64_t cols) {
  CANZONA_CHECK_EQ(got.size(), expected.size(), "elements of a basis");
  const auto stride = static_cast<size_t>(cols);
  for (size_t j = 0; j < stride; ++j) {
    double dot = 0;
    for (size_t i = j; i < got.size(); i += stride) dot += got[i] * expected[i];
    if (dot >= 0) continue;
    for (size_t i = j; i < got.size(); i += stride) got[i] = -got[i];
  }
}

std::optional<double> tolerance_of(const Fixture& fixture,
                                   const TensorName& name) {
  std::string key = cat(name.what, ".", name.step);
  while (true) {
    const auto found = fixture.tolerance.find(key);
    if (found != fixture.tolerance.end()) return found->second;
    const size_t dot = key.rfind('.');
    if (dot == std::string::npos) break;
    key.resize(dot);
  }
  fixture.refuse(cat("no tolerance for tensor ", quoted(to_string(name))));
}

double widened(double tolerance, double slack) {
  constexpr double kWidest = 0.75;
  return std::max(tolerance, std::min(tolerance * slack, kWidest));
}

double Finding::ratio() const {
  if (deviation == 0) return 0;
  return tolerance == 0 ? kInfinite : deviation / tolerance;
}

void Findings::add(const std::string& tensor, double deviation,
                   double tolerance) {
  const Finding finding{tensor, deviation, tolerance};
  const double before = worst_.ratio();
  const double now = finding.ratio();
  const bool worse = std::isnan(now) ? !std::isnan(before) : now > before;
  if (count_++ == 0 || worse) worst_ = finding;
}

void Findings::fail(const std::string& reason) {
  if (failure_.empty()) failure_ = reason;
}

bool Findings::passed() const {
  return failure_.empty() && count_ > 0 && worst_.passed();
}

std::string Findings::reason() const {
  if (!failure_.empty()) return failure_;
  if (count_ == 0) return "nothing was compared";
  if (worst_.passed()) return "";
  return cat(worst_.tensor, " deviates by ", short_number(worst_.deviation),
             ", ", short_number(worst_.tolerance), " is allowed");
}

}  // namespace canzona

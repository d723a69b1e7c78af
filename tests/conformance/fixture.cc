#include "tests/conformance/fixture.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/rules/facts.h"
#include "canzona/shapes/safetensors.h"

namespace canzona::tests {
namespace {

constexpr int64_t kMaxMetadataBytes = 1 << 20;

// True if this can be a name without its numbers.
bool is_word(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
  });
}

// Parses a number without sign or leading zeros.
std::optional<int64_t> plain_number(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool plain = error == std::errc() && stop == end && value >= 0 &&
                     text == std::to_string(value);
  return plain ? std::optional(value) : std::nullopt;
}

// The raw data is little endian on any machine.
template <class Value>
Value little_endian(const char* bytes) {
  char ordered[sizeof(Value)];
  std::memcpy(ordered, bytes, sizeof ordered);
  if constexpr (std::endian::native == std::endian::big)
    std::reverse(std::begin(ordered), std::end(ordered));
  Value value;
  std::memcpy(&value, ordered, sizeof value);
  return value;
}

template <class Stored, class Value>
void append_values(std::vector<Value>& to, std::string_view data) {
  to.reserve(data.size() / sizeof(Stored));
  for (size_t i = 0; i < data.size(); i += sizeof(Stored))
    to.push_back(static_cast<Value>(little_endian<Stored>(data.data() + i)));
}

class Reader {
 public:
  Reader(std::string_view bytes, const std::string& file) : bytes_(bytes) {
    fixture_.file = file;
  }

  Fixture read() {
    if (static_cast<int64_t>(bytes_.size()) > kMaxFixtureBytes)
      fixture_.refuse(
          cat(bytes_.size(), " bytes, the limit is ", kMaxFixtureBytes));
    header_ = read_safetensors_header(
        bytes_, static_cast<int64_t>(bytes_.size()), fixture_.file);
    if (static_cast<int64_t>(header_.tensors.size()) > kMaxFixtureTensors)
      fixture_.refuse(cat(header_.tensors.size(), " tensors, the limit is ",
                          kMaxFixtureTensors));
    read_metadata();
    for (const StoredTensor& stored : header_.tensors) read_tensor(stored);
    if (!fixture_.is_pure()) check_run();
    return std::move(fixture_);
  }

 private:
  const std::string& text(const std::string& key) const {
    const auto found = header_.metadata.find(key);
    if (found == header_.metadata.end())
      fixture_.refuse(cat("__metadata__: ", quoted(key), " is missing"));
    return found->second;
  }

  std::string word(const std::string& key,
                   const std::vector<std::string>& known) const {
    const std::string& value = text(key);
    if (std::find(known.begin(), known.end(), value) == known.end())
      fixture_.refuse(cat("__metadata__: ", key, " is ", quoted(value),
                          did_you_mean(value, known), ", expected ",
                          join(known, "|")));
    return value;
  }

  Json json(const std::string& key) const {
    const std::string what =
        cat(printable(fixture_.file), ": __metadata__ ", key);
    Json value = parse_json(text(key), {.what = what,
                                        .max_bytes = kMaxMetadataBytes,
                                        .max_depth = 8,
                                        .max_values = 100'000});
    if (!value.is_object()) throw UsageError(cat(what, ": no object"));
    return value;
  }

  void read_metadata() {
    std::vector<std::string> rules = {"ns", "root", "qkclip"};
    for (const RuleEntry& entry : rule_table()) rules.push_back(entry.name);
    fixture_.rule = word("rule", rules);
    fixture_.preset = printable(text("preset"), 40);
    fixture_.dtype = fixture_.is_pure()
                         ? printable(text("dtype"), 80)
                         : word("dtype", {"f64", "f32", "bf16_ns"});
    fixture_.injected = word("mode", {"free", "injected"}) == "injected";
    fixture_.steps =
        parse_integer(text("steps"), 1, kMaxFixtureSteps,
                      cat(printable(fixture_.file), ": __metadata__ steps"));
    fixture_.options = json("options");
    if (fixture_.rule == "qkclip") fixture_.geometry = json("geometry");
    read_tolerance(json("tolerance"));
  }

  void read_tolerance(const Json& tolerance) {
    for (const auto& [name, value] : tolerance.items()) {
      const bool is_skip = value.is_null();
      if (!is_skip && !(value.is_number() && value.get<double>() >= 0))
        fixture_.refuse(cat("tolerance of ", quoted(name),
                            ": expected a number from 0 or null"));
      fixture_.tolerance[name] =
          is_skip ? std::nullopt : std::optional(value.get<double>());
    }
  }

  void read_tensor(const StoredTensor& stored) {
    const auto name = parse_tensor_name(stored.name);
    if (!name || (!fixture_.is_pure() && name->step > fixture_.steps))
      fixture_.refuse(cat("tensor ", quoted(stored.name),
                          ": no name of a fixture of ",
                          counted_text(fixture_.steps, "step")));
    const std::string_view data =
        bytes_.substr(static_cast<size_t>(stored.begin),
                      static_cast<size_t>(stored.end - stored.begin));
    FixtureTensor& tensor = fixture_.tensors[stored.name];
    tensor.dims = stored.shape;
    const bool is_order = name->what.starts_with("perm_");
    if (is_order && stored.dtype == "I64") {
      append_values<int64_t>(tensor.integers, data);
    } else if (!is_order && stored.dtype == "F64") {
      append_values<double>(tensor.values, data);
    } else if (!is_order && stored.dtype == "F32") {
      append_values<float>(tensor.values, data);
    } else {
      fixture_.refuse(cat("tensor ", quoted(stored.name), " is ", stored.dtype,
                          ", expected ", is_order ? "I64" : "F64 or F32"));
    }
  }

  // Every step must have a gradient and a result of the parameter's shape.
  void check_run() const {
    const std::vector<int64_t>& dims = fixture_.tensor("param.0").dims;
    for (int64_t t = 1; t <= fixture_.steps; ++t)
      for (const char* what : {"grad.", "param."}) {
        const std::string name = cat(what, t);
        if (fixture_.tensor(name).dims != dims)
          fixture_.refuse(cat("tensor ", quoted(name), " is ",
                              shape_text(fixture_.tensor(name).dims),
                              ", param.0 is ", shape_text(dims)));
      }
  }

  std::string_view bytes_;
  SafetensorsHeader header_;
  Fixture fixture_;
};

}  // namespace

std::optional<TensorName> parse_tensor_name(std::string_view name) {
  TensorName parsed;
  constexpr std::string_view kInject = "inject.";
  if (name.starts_with(kInject)) {
    parsed.inject = true;
    name.remove_prefix(kInject.size());
  }
  const size_t last = name.rfind('.');
  if (last == std::string_view::npos) return std::nullopt;
  const auto step = plain_number(name.substr(last + 1));
  if (!step) return std::nullopt;
  parsed.step = *step;
  name = name.substr(0, last);
  const size_t first = name.find('.');
  if (first != std::string_view::npos && name.starts_with('b')) {
    const auto block = plain_number(name.substr(1, first - 1));
    if (!block) return std::nullopt;
    parsed.block = *block;
    name.remove_prefix(first + 1);
  }
  if (!is_word(name)) return std::nullopt;
  parsed.what = name;
  return parsed;
}

std::string to_string(const TensorName& name) {
  return cat(name.inject ? "inject." : "",
             name.block >= 0 ? cat("b", name.block, ".") : "", name.what, ".",
             name.step);
}

const FixtureTensor* Fixture::find(const std::string& name) const {
  const auto found = tensors.find(name);
  return found == tensors.end() ? nullptr : &found->second;
}

const FixtureTensor& Fixture::tensor(const std::string& name) const {
  const FixtureTensor* found = find(name);
  if (found == nullptr) refuse(cat("tensor ", quoted(name), " is missing"));
  return *found;
}

void Fixture::refuse(const std::string& problem) const {
  throw UsageError(cat(printable(file), ": ", problem));
}

Fixture read_fixture(std::string_view bytes, const std::string& file) {
  return Reader(bytes, file).read();
}

Fixture read_fixture_file(const std::string& path) {
  return read_fixture(read_file(path, kMaxFixtureBytes, "the fixture"), path);
}

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

namespace {

Square product(const Square& a, const Square& b, int64_t n) {
  Square c(a.size(), 0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < n; ++k) {
      const double factor = a[static_cast<size_t>(i * n + k)];
      for (int64_t j = 0; j < n; ++j)
        c[static_cast<size_t>(i * n + j)] +=
            factor * b[static_cast<size_t>(k * n + j)];
    }
  return c;
}

Square transposed(const Square& a, int64_t n) {
  Square t(a.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      t[static_cast<size_t>(j * n + i)] = a[static_cast<size_t>(i * n + j)];
  return t;
}

Square rotated(const Square& q, const Square& f, int64_t n) {
  return product(transposed(q, n), product(f, q, n), n);
}

double distance_from_identity(const Square& a, int64_t n) {
  double furthest = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const double off =
          std::abs(a[static_cast<size_t>(i * n + j)] - (i == j ? 1 : 0));
      if (std::isnan(off)) return std::numeric_limits<double>::quiet_NaN();
      furthest = std::max(furthest, off);
    }
  return furthest;
}

}  // namespace

double orthogonality_error(const Square& q, int64_t n) {
  return distance_from_identity(product(transposed(q, n), q, n), n);
}

double off_diagonal_share(const Square& q, const Square& f, int64_t n) {
  const Square inner = rotated(q, f, n);
  double largest = 0;
  for (double x : f) largest = std::max(largest, std::abs(x));
  if (largest == 0) return 0;
  double off = 0, whole = 0;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<size_t>(i * n + j);
      const double entry = inner[at] / largest;  // squares stay in range
      if (i != j) off += entry * entry;
      whole += (f[at] / largest) * (f[at] / largest);
    }
  return std::sqrt(off / whole);
}

std::vector<double> eigenvalue_estimates(const Square& q, const Square& f,
                                         int64_t n) {
  const Square inner = rotated(q, f, n);
  std::vector<double> diagonal;
  for (int64_t i = 0; i < n; ++i)
    diagonal.push_back(inner[static_cast<size_t>(i * n + i)]);
  return diagonal;
}

double root_residual(const Square& a, const Square& x, int64_t n, int64_t p,
                     int64_t q) {
  Square power = a;
  for (int64_t i = 1; i < q; ++i) power = product(power, a, n);
  for (int64_t i = 0; i < p; ++i) power = product(power, x, n);
  return distance_from_identity(power, n);
}

}  // namespace canzona::tests

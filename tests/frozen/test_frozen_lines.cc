#include "test_frozen_lines.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>

namespace canzona::tests {
namespace {

constexpr double kTimeTolerance = 1e-12;
constexpr const char* kBetweenFacts = " | ";

std::string exact_digits(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::vector<std::string> split_facts(const std::string& line) {
  const std::string between = kBetweenFacts;
  std::vector<std::string> fields;
  size_t begin = 0;
  for (size_t end = 0; end != std::string::npos; begin = end + between.size()) {
    end = line.find(between, begin);
    fields.push_back(line.substr(begin, end - begin));
  }
  return fields;
}

FrozenFacts parse_facts(const std::vector<std::string>& fields) {
  FrozenFacts facts;
  for (size_t i = 1; i < fields.size(); ++i) {
    const size_t at = fields[i].find(' ');
    const std::string name = fields[i].substr(0, at);
    const std::string value =
        at == std::string::npos ? "" : fields[i].substr(at + 1);
    if (name.starts_with('~'))
      facts.times.emplace_back(name.substr(1), std::stod(value));
    else
      facts.exact.emplace_back(name, value);
  }
  return facts;
}

bool nearly_equal(double a, double b) {
  return std::abs(a - b) <= kTimeTolerance * std::max(std::abs(a), std::abs(b));
}

template <class Value, class Equal, class Show>
void compare_facts(const std::vector<std::pair<std::string, Value>>& frozen,
                   const std::vector<std::pair<std::string, Value>>& now,
                   const Equal& equal, const Show& show,
                   std::vector<std::string>& out) {
  std::map<std::string, std::pair<const Value*, const Value*>> both;
  for (const auto& [name, value] : frozen) both[name].first = &value;
  for (const auto& [name, value] : now) both[name].second = &value;
  for (const auto& [name, values] : both) {
    const auto [before, after] = values;
    if (before != nullptr && after != nullptr && equal(*before, *after))
      continue;
    out.push_back(name + ": was " + (before ? show(*before) : "not there") +
                  ", is " + (after ? show(*after) : "not there"));
  }
}

}  // namespace

std::string frozen_line(const std::string& text, const FrozenFacts& facts) {
  std::string line = text;
  for (const auto& [name, value] : facts.exact)
    line += kBetweenFacts + name + " " + value;
  for (const auto& [name, value] : facts.times)
    line += kBetweenFacts + ("~" + name) + " " + exact_digits(value);
  return line;
}

std::map<std::string, FrozenFacts> read_frozen(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw std::runtime_error(path + " cannot be read");
  std::map<std::string, FrozenFacts> all;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = split_facts(line);
    if (!all.emplace(fields[0], parse_facts(fields)).second)
      throw std::runtime_error(path + " has " + fields[0] + " twice");
  }
  return all;
}

std::vector<std::string> differences(const FrozenFacts& frozen,
                                     const FrozenFacts& now) {
  std::vector<std::string> out;
  compare_facts(
      frozen.exact, now.exact, std::equal_to<>(),
      [](const std::string& value) { return value; }, out);
  compare_facts(frozen.times, now.times, nearly_equal, exact_digits, out);
  return out;
}

}  // namespace canzona::tests

#include "canzona/conformance/option_reader.h"

#include <charconv>

#include "canzona/base/text.h"

namespace canzona {

std::string exact_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

OptionReader::OptionReader(const Fixture& fixture) : fixture_(fixture) {
  if (has("scalar_precision"))
    fp32_scalars_ = word("scalar_precision",
                         {{"double", "double"}, {"fp32", "fp32"}}) == "fp32";
}

bool OptionReader::has(const std::string& key) const {
  return fixture_.options.contains(key);
}

const Json& OptionReader::value(const std::string& key) {
  asked_.insert(key);
  return get_member(fixture_.options, key.c_str(),
                    cat(printable(fixture_.file), ": options"));
}

double OptionReader::real(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_number()) refuse(key, "a number");
  const auto number = found.get<double>();
  return fp32_scalars_ ? static_cast<double>(static_cast<float>(number))
                       : number;
}

std::vector<double> OptionReader::reals(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_array()) refuse(key, "a list of numbers");
  std::vector<double> numbers;
  for (const Json& number : found) {
    if (!number.is_number()) refuse(key, "a list of numbers");
    const auto exact = number.get<double>();
    numbers.push_back(
        fp32_scalars_ ? static_cast<double>(static_cast<float>(exact)) : exact);
  }
  return numbers;
}

std::string OptionReader::count(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_number()) refuse(key, "a number");
  if (found.is_number_integer()) return std::to_string(found.get<int64_t>());
  return exact_text(found.get<double>());
}

bool OptionReader::boolean(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_boolean()) refuse(key, "true or false");
  return found.get<bool>();
}

std::string OptionReader::word(const std::string& key) {
  const Json& found = value(key);
  if (!found.is_string()) refuse(key, "a word");
  return found.get<std::string>();
}

std::string OptionReader::word(const std::string& key, Words words) {
  const std::string theirs = word(key);
  for (const auto& [known, ours] : words)
    if (theirs == known) return ours;
  unsupported(key);
}

bool OptionReader::is(const std::string& key, const Json& expected) {
  return value(key) == expected;
}

void OptionReader::require(const std::string& key, const Json& expected) {
  if (has(key) && !is(key, expected)) unsupported(key);
}

void OptionReader::ignore(std::initializer_list<const char*> keys) {
  asked_.insert(keys.begin(), keys.end());
}

void OptionReader::unsupported(const std::string& key) const {
  throw Unsupported(cat(printable(key, 60), "=",
                        printable(fixture_.options.at(key).dump(), 80)));
}

void OptionReader::finish() const {
  for (const auto& [key, value] : fixture_.options.items())
    if (asked_.count(key) == 0) unsupported(key);
}

void OptionReader::refuse(const std::string& key, const char* expected) const {
  fixture_.refuse(cat("options: ", key, " is ",
                      printable(fixture_.options.at(key).dump(), 80),
                      ", expected ", expected));
}

}  // namespace canzona

// One key: its value as text, its bounds, and setting it.
#include <algorithm>
#include <cmath>
#include <optional>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/train/config_keys.h"
#include "canzona/train/value_text.h"

namespace canzona {
namespace {

[[noreturn]] void refuse(const ConfigKey& key, const Setting& setting) {
  const auto* word = std::get_if<std::string>(&setting.value);
  const auto* raw = std::get_if<RawText>(&setting.value);
  const std::string text = word != nullptr  ? *word
                           : raw != nullptr ? raw->text
                                            : std::string();
  throw UsageError(cat(key.name, " (", setting.origin, "): expected ",
                       key.allowed(), ", found ", describe(setting.value),
                       did_you_mean(text, key.words)));
}

// The value as the type asked for, or a refusal.
template <class Type>
Type plain(const ConfigKey& key, const Setting& setting) {
  if (const auto* value = std::get_if<Type>(&setting.value)) return *value;
  refuse(key, setting);
}

template <class Number>
Number parse_whole_text(const std::string& text, const ConfigKey& key,
                        const Setting& setting) {
  Number number{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) refuse(key, setting);
  return number;
}

// From a word of the command line, or as the file typed it.
template <class Number>
Number number_of(const ConfigKey& key, const Setting& setting) {
  if (const auto* raw = std::get_if<RawText>(&setting.value))
    return parse_whole_text<Number>(raw->text, key, setting);
  if constexpr (std::is_same_v<Number, double>)
    if (const auto* whole = std::get_if<int64_t>(&setting.value))
      return static_cast<double>(*whole);
  return plain<Number>(key, setting);
}

// The number that a word stands for; empty if it is none.
std::optional<int64_t> number_called(const ConfigKey& key,
                                     const Setting& setting) {
  const auto* raw = std::get_if<RawText>(&setting.value);
  const auto* text = std::get_if<std::string>(&setting.value);
  const std::string word = raw != nullptr    ? raw->text
                           : text != nullptr ? *text
                                             : std::string();
  const auto at = std::ranges::find(key.words, word);
  if (at == key.words.end()) return std::nullopt;
  return static_cast<int64_t>(key.low) + (at - key.words.begin());
}

// Its place among the words, or behind them.
size_t place_of(const ConfigKey& key, int64_t number) {
  return static_cast<size_t>(number - static_cast<int64_t>(key.low));
}

template <class Number>
void set_number(const ConfigKey& key, Number* to, const Setting& setting) {
  const auto number = number_of<Number>(key, setting);
  const auto real = static_cast<double>(number);
  // A negative number only stores a word; 0 is how older files say `all`.
  const double low = key.words.empty() ? key.low : std::max(key.low, 0.0);
  // Infinity is a bound, never a value; NaN fails every comparison.
  if (!(real >= low && real <= key.high) || std::isinf(real))
    refuse(key, setting);
  *to = number;
}

bool truth_of(const ConfigKey& key, const Setting& setting) {
  const auto* raw = std::get_if<RawText>(&setting.value);
  if (raw == nullptr) return plain<bool>(key, setting);
  if (raw->text == "on" || raw->text == "true") return true;
  if (raw->text == "off" || raw->text == "false") return false;
  refuse(key, setting);
}

std::string word_of(const ConfigKey& key, const Setting& setting) {
  const auto* raw = std::get_if<RawText>(&setting.value);
  std::string text =
      raw != nullptr ? raw->text : plain<std::string>(key, setting);
  if (key.words.empty()) return text;
  for (const std::string& word : key.words)
    if (word == text) return text;
  refuse(key, setting);
}

std::string bound_text(double bound) {
  return bound == std::floor(bound) && std::abs(bound) < 1e15
             ? cat(static_cast<int64_t>(bound))
             : number_text(bound);
}

std::string range_text(const ConfigKey& key, const char* kind) {
  const std::string low = bound_text(key.low);
  return std::isinf(key.high)
             ? cat(kind, ", ", low, " or more")
             : cat(kind, " from ", low, " to ", bound_text(key.high));
}

struct ValueText {
  const ConfigKey& key;
  std::string operator()(const int64_t* number) const {
    return key.is_word() ? key.words[place_of(key, *number)] : cat(*number);
  }
  std::string operator()(const double* number) const {
    return number_text(*number);
  }
  std::string operator()(const bool* truth) const {
    return *truth ? "on" : "off";
  }
  std::string operator()(const std::string* text) const { return *text; }
};

struct Allowed {
  const ConfigKey& key;
  std::string operator()(const int64_t*) const {
    if (key.words.empty()) return range_text(key, "a whole number");
    ConfigKey numbers = key;
    numbers.low += static_cast<double>(key.words.size());
    return cat(join(key.words, ", "), " or ",
               range_text(numbers, "a whole number"));
  }
  std::string operator()(const double*) const {
    return range_text(key, "a number");
  }
  std::string operator()(const bool*) const { return "on or off"; }
  std::string operator()(const std::string*) const {
    return key.words.empty() ? "a text" : join(key.words, ", ");
  }
};

struct Set {
  const ConfigKey& key;
  const Setting& setting;
  void operator()(int64_t* to) const {
    if (const auto number = number_called(key, setting))
      *to = *number;
    else
      set_number(key, to, setting);
  }
  void operator()(double* to) const { set_number(key, to, setting); }
  void operator()(bool* to) const { *to = truth_of(key, setting); }
  void operator()(std::string* to) const { *to = word_of(key, setting); }
};

}  // namespace

std::string ConfigKey::text() const {
  return std::visit(ValueText{*this}, value);
}

bool ConfigKey::is_word() const {
  const auto* number = std::get_if<int64_t*>(&value);
  return number != nullptr ? place_of(*this, **number) < words.size()
                           : !words.empty();
}

std::string ConfigKey::allowed() const {
  return std::visit(Allowed{*this}, value);
}

void ConfigKey::set(const Setting& setting) const {
  std::visit(Set{*this, setting}, value);
}

}  // namespace canzona

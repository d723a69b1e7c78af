#include "canzona/rules/options.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "canzona/base/check.h"
#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::rules {
namespace {

constexpr const char* kPeriod = "precondition_frequency";
constexpr const char* kPhases = "phases";
constexpr const char* kPreset = "preset";

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<double> real_number(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || std::isnan(value))
    return std::nullopt;
  return value;
}

// The shortest text that parses to this number.
std::string shortest(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return std::string(text, end);
}

bool is_range(std::string_view choice) {
  return choice.find("..") != std::string_view::npos;
}

struct Range {
  std::string_view low;
  std::string_view high;
  bool is_open = false;  // the high bound is excluded: "0.0..<1.0"
};
Range bounds(std::string_view choice) {
  const size_t dots = choice.find("..");
  const std::string_view high = choice.substr(dots + 2);
  const bool is_open = high.starts_with('<');
  return {choice.substr(0, dots), high.substr(is_open ? 1 : 0), is_open};
}

std::optional<std::string> match_whole(Range range, const std::string& value) {
  const auto low = whole_number(range.low);
  const auto high = whole_number(range.high);
  CANZONA_CHECK(low && high, "range ", range.low, "..", range.high);
  const auto number = whole_number(value);
  if (!number || *number < *low || *number > *high ||
      (range.is_open && *number == *high))
    return std::nullopt;
  return std::to_string(*number);
}

// Infinity may be a bound but never a value.
std::optional<std::string> match_real(Range range, const std::string& value) {
  const auto low = real_number(range.low);
  const auto high = real_number(range.high);
  CANZONA_CHECK(low && high, "range ", range.low, "..", range.high);
  const auto number = real_number(value);
  if (!number || std::isinf(*number) || *number < *low || *number > *high ||
      (range.is_open && *number == *high))
    return std::nullopt;
  return shortest(*number);
}

std::optional<std::string> match_triples(const std::string& value) {
  std::string stored;
  for (const std::string& triple : split_text(value, ';')) {
    const std::vector<std::string> parts = split_text(triple, ',');
    if (parts.size() != 3) return std::nullopt;
    for (size_t i = 0; i < 3; ++i) {
      const auto number = real_number(parts[i]);
      if (!number || std::isinf(*number)) return std::nullopt;
      if (!stored.empty()) stored += i == 0 ? ";" : ",";
      stored += shortest(*number);
    }
  }
  return stored;
}

std::optional<std::string> match_range(std::string_view choice,
                                       const std::string& value) {
  const Range range = bounds(choice);
  const bool real = range.low.find('.') != std::string_view::npos;
  return real ? match_real(range, value) : match_whole(range, value);
}

std::optional<std::string> match_list(std::string_view range,
                                      const std::string& value) {
  std::vector<std::string> stored;
  for (const std::string& number : split_text(value, ',')) {
    const auto matched = match_range(range, number);
    if (!matched) return std::nullopt;
    stored.push_back(*matched);
  }
  return join(stored, ",");
}

// Returns `value` as it will be stored if `choice` (a word, a range, a list of
// numbers in a range or TRIPLES) allows it.
std::optional<std::string> match(std::string_view choice,
                                 const std::string& value) {
  constexpr std::string_view kList = ",...";
  if (choice == "TRIPLES") return match_triples(value);
  if (!is_range(choice))
    return choice == value ? std::optional(value) : std::nullopt;
  if (choice.ends_with(kList))
    return match_list(choice.substr(0, choice.size() - kList.size()), value);
  return match_range(choice, value);
}

std::string allowed_value(std::string_view rule, const OptionFact& fact,
                          const std::string& value) {
  std::vector<std::string> words;
  for (const std::string& choice : split_text(fact.allowed, '|')) {
    if (auto stored = match(choice, value)) return *stored;
    if (!is_range(choice) && choice != "TRIPLES") words.push_back(choice);
  }
  throw UsageError(cat("rule ", rule, ": ", fact.name, "=", quoted(value),
                       " is not one of ", fact.allowed,
                       did_you_mean(value, words)));
}

void require_known(std::string_view rule, const std::vector<OptionFact>& known,
                   const RuleOptions& given) {
  std::vector<std::string> names;
  names.reserve(known.size());
  for (const OptionFact& fact : known) names.push_back(fact.name);
  for (const auto& [name, value] : given) {
    bool is_known = false;
    for (const std::string& known_name : names) is_known |= known_name == name;
    if (is_known) continue;
    const std::string all = names.empty()
                                ? "it has no options"
                                : cat("its options are ", join(names, ", "));
    throw UsageError(cat("rule ", rule, " has no option ", quoted(name),
                         did_you_mean(name, names), "; ", all));
  }
}

// The option that selects one of the presets.
OptionFact preset_fact(const std::vector<Preset>& presets) {
  std::vector<std::string> names;
  names.reserve(presets.size());
  for (const Preset& preset : presets) names.push_back(preset.name);
  return {kPreset, names.front(), join(names, "|"), "named set of defaults"};
}

const RuleOptions& values_of(const std::vector<Preset>& presets,
                             const std::string& name) {
  for (const Preset& preset : presets)
    if (preset.name == name) return preset.values;
  throw InternalError(cat("no preset ", name));
}

}  // namespace

RuleOptions options_in_force(std::string_view rule,
                             const std::vector<OptionFact>& known,
                             const std::vector<Preset>& presets,
                             const RuleOptions& given) {
  std::vector<OptionFact> facts = known;
  if (!presets.empty()) facts.push_back(preset_fact(presets));
  require_known(rule, facts, given);
  RuleOptions asked = given;
  if (!presets.empty()) {
    const auto chosen = asked.try_emplace(kPreset, presets.front().name).first;
    allowed_value(rule, facts.back(), chosen->second);
    for (const auto& [name, value] : values_of(presets, chosen->second))
      asked.try_emplace(name, value);
    require_known(rule, facts, asked);
  }
  RuleOptions in_force;
  for (const OptionFact& fact : facts) {
    const auto found = asked.find(fact.name);
    const std::string& value =
        found == asked.end() ? fact.default_value : found->second;
    in_force[fact.name] = allowed_value(rule, fact, value);
  }
  return in_force;
}

const std::string& word_option(const RuleOptions& options,
                               std::string_view name) {
  const auto found = options.find(std::string(name));
  CANZONA_CHECK(found != options.end(), "option ", name);
  return found->second;
}

int64_t integer_option(const RuleOptions& options, const std::string& name) {
  const auto value = whole_number(word_option(options, name));
  CANZONA_CHECK(value.has_value(), name, "=", options.at(name));
  return *value;
}

double real_option(const RuleOptions& options, const std::string& name) {
  const auto value = real_number(word_option(options, name));
  CANZONA_CHECK(value.has_value(), name, "=", options.at(name));
  return *value;
}

bool switch_option(const RuleOptions& options, const std::string& name) {
  return word_option(options, name) == "on";
}

std::vector<double> reals_option(const RuleOptions& options,
                                 const std::string& name) {
  std::vector<double> numbers;
  for (const std::string& text : split_text(word_option(options, name), ',')) {
    const auto value = real_number(text);
    CANZONA_CHECK(value.has_value(), name, "=", options.at(name));
    numbers.push_back(*value);
  }
  return numbers;
}

std::vector<std::array<double, 3>> read_triples(std::string_view text) {
  std::vector<std::array<double, 3>> triples;
  for (const std::string& triple : split_text(std::string(text), ';')) {
    const std::vector<std::string> parts = split_text(triple, ',');
    CANZONA_CHECK_EQ(parts.size(), 3U, "numbers in ", quoted(text));
    std::array<double, 3> numbers{};
    for (size_t i = 0; i < 3; ++i) numbers[i] = real_number(parts[i]).value();
    triples.push_back(numbers);
  }
  return triples;
}

void require_at_most(std::string_view rule, const RuleOptions& options,
                     const std::string& name, int64_t limit,
                     std::string_view limit_text) {
  const int64_t value = integer_option(options, name);
  if (value <= limit) return;
  throw UsageError(cat("rule ", rule, ": ", name, "=", value, " is more than ",
                       limit_text, "=", limit));
}

std::vector<OptionFact> with_step_size(const std::string& rate,
                                       const std::string& decay,
                                       const std::vector<OptionFact>& own) {
  std::vector<OptionFact> facts = {
      {"learning_rate", rate, "0.0..inf", "peak learning rate"},
      {"weight_decay", decay, "0.0..inf", "weight decay coefficient"}};
  facts.insert(facts.end(), own.begin(), own.end());
  return facts;
}

std::vector<OptionFact> refresh_option_facts(
    const std::string& default_period) {
  return {{kPeriod, default_period, "1..10000", "steps between refreshes"},
          {kPhases, "1", "1..10000",
           "steps over which refreshes are spread; at most the frequency"}};
}

RuleOptions short_period() { return {{kPeriod, "3"}}; }

RefreshOptions read_refresh(std::string_view rule, const RuleOptions& options) {
  const int64_t period = integer_option(options, kPeriod);
  require_at_most(rule, options, kPhases, period, kPeriod);
  return {static_cast<int>(period),
          static_cast<int>(integer_option(options, kPhases))};
}

std::vector<OptionFact> product_option_facts() {
  return {{"products", "auto", "auto|fp32|bf16x3",
           "plain fp32 products, or faster ones of numbers split into two "
           "bf16, accurate to 1e-5; auto: bf16x3 on cuda"}};
}

void choose_products(RuleOptions& options) {
  std::string& products = options.at("products");
  if (products == "auto")
    products = device_kind(options.at("device")).multiplies_cheaply ? "bf16x3"
                                                                    : "fp32";
}

bool splits_products(const RuleOptions& options) {
  return word_option(options, "products") == "bf16x3";
}

}  // namespace canzona::rules

#include "canzona/rules/options.h"

#include <charconv>
#include <optional>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona {
namespace {

constexpr const char* kPeriod = "precondition_frequency";
constexpr const char* kPhases = "phases";

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

bool is_range(std::string_view choice) {
  return choice.find("..") != std::string_view::npos;
}

// `value` as it will be stored, if `choice`, a word or a range, allows it.
std::optional<std::string> match(std::string_view choice,
                                 const std::string& value) {
  if (!is_range(choice)) {
    return choice == value ? std::optional(value) : std::nullopt;
  }
  const size_t dots = choice.find("..");
  const auto low = whole_number(choice.substr(0, dots));
  const auto high = whole_number(choice.substr(dots + 2));
  CANZONA_CHECK(low && high, "range ", choice);
  const auto number = whole_number(value);
  if (!number || *number < *low || *number > *high) return std::nullopt;
  return std::to_string(*number);
}

std::string allowed_value(std::string_view rule, const OptionFact& fact,
                          const std::string& value) {
  std::vector<std::string> words;
  for (const std::string& choice : split_text(fact.allowed, '|')) {
    if (auto stored = match(choice, value)) return *stored;
    if (!is_range(choice)) words.push_back(choice);
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
    const std::string all =
        names.empty() ? "it has none" : cat("it has ", join(names, ", "));
    throw UsageError(cat("rule ", rule, " has no option ", quoted(name),
                         did_you_mean(name, names), "; ", all));
  }
}

}  // namespace

RuleOptions options_in_force(std::string_view rule,
                             const std::vector<OptionFact>& known,
                             const RuleOptions& given) {
  require_known(rule, known, given);
  RuleOptions in_force;
  for (const OptionFact& fact : known) {
    const auto found = given.find(fact.name);
    const std::string& value =
        found == given.end() ? fact.default_value : found->second;
    in_force[fact.name] = allowed_value(rule, fact, value);
  }
  return in_force;
}

int64_t integer_option(const RuleOptions& options, const std::string& name) {
  const auto found = options.find(name);
  CANZONA_CHECK(found != options.end(), "option ", name);
  const auto value = whole_number(found->second);
  CANZONA_CHECK(value.has_value(), name, "=", found->second);
  return *value;
}

void require_at_most(std::string_view rule, const RuleOptions& options,
                     const std::string& name, int64_t limit,
                     std::string_view limit_text) {
  const int64_t value = integer_option(options, name);
  if (value <= limit) return;
  throw UsageError(cat("rule ", rule, ": ", name, "=", value, " is more than ",
                       limit_text, "=", limit));
}

std::vector<OptionFact> refresh_option_facts(
    const std::string& default_period) {
  return {
      {kPeriod, default_period, "1..10000", "steps from refresh to refresh"},
      {kPhases, "1", "1..10000",
       "steps over which refreshes are spread, at most the frequency"}};
}

RefreshOptions read_refresh(std::string_view rule, const RuleOptions& options) {
  const int64_t period = integer_option(options, kPeriod);
  require_at_most(rule, options, kPhases, period, kPeriod);
  return {static_cast<int>(period),
          static_cast<int>(integer_option(options, kPhases))};
}

}  // namespace canzona

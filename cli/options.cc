#include "cli/options.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string_view>
#include <type_traits>

#include "canzona/base/text.h"
#include "canzona/rules/facts.h"
#include "canzona/shapes/read_model.h"

namespace canzona::cli {
namespace {

// The words are stored in the option's type name, which the help does not show.
constexpr const char* kOfferMark = "one of ";

template <class Entries>
void append_names(const Entries& entries, std::vector<std::string>& names) {
  for (const auto& entry : entries) names.push_back(entry.name);
}

// Returns what is wrong with a text, or "" after replacing it by the same
// number without a sign or leading zeros, which the library misreads.
template <class Number>
std::string settle_number(std::string& text, const char* kind) {
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  Number number{};
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (stop != end || digits.empty() || error == std::errc::invalid_argument)
    return cat("expected ", kind, ", found ", quoted(text));
  if (error == std::errc::result_out_of_range)
    return cat("expected ", kind, " from ",
               std::numeric_limits<Number>::lowest(), " to ",
               std::numeric_limits<Number>::max(), ", found ", quoted(text));
  if constexpr (std::is_integral_v<Number>)
    text = cat(number);
  else if (!std::isfinite(number))
    return cat("expected ", kind, " that is finite, found ", quoted(text));
  return "";
}

void require_number(CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type == "INT")
    option.transform(CLI::Validator(
        [](std::string& text) {
          return settle_number<int64_t>(text, "a whole number");
        },
        ""));
  if (type == "UINT")
    option.transform(CLI::Validator(
        [](std::string& text) {
          return settle_number<uint64_t>(text, "a whole number");
        },
        ""));
  if (type == "FLOAT")
    option.transform(CLI::Validator(
        [](std::string& text) {
          return settle_number<double>(text, "a number");
        },
        ""));
}

}  // namespace

void require_numbers(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) require_number(*option);
  for (CLI::App* verb : app.get_subcommands({})) require_numbers(*verb);
}

CLI::Option* offer_words(CLI::Option* option,
                         const std::vector<std::string>& words) {
  if (words.empty()) return option;
  return option->type_name(kOfferMark + join(words, " "));
}

Offer offer_of(const CLI::Option& option) {
  Offer offer;
  const std::string type = option.get_type_name();
  if (type.starts_with(kOfferMark))
    offer.words = split_text(type.substr(std::string(kOfferMark).size()), ' ');
  const bool named = option.nonpositional();
  const std::string label =
      named ? option.get_option_text() : option.get_name(true, false);
  if (label == "DEVICE") offer.words = {"cpu", "cuda"};
  if (label == "MODEL") append_names(presets(), offer.words);
  if (label == "RULE" && offer.words.empty())
    append_names(rule_table(), offer.words);
  offer.files =
      label == "MODEL" || label == "FILE" || label == "PLAN" || label == "PATH";
  offer.folders = label == "DIR" || label == "RUN";
  return offer;
}

}  // namespace canzona::cli

#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
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

// 2^63, the nearest to the largest integer, is not one itself.
int64_t whole_bound(double bound) {
  return bound >= 0x1p63 ? std::numeric_limits<int64_t>::max()
                         : static_cast<int64_t>(bound);
}

// "1 or more", "1 to 1000"
std::string range_text(const OptionRow& row) {
  const auto [low, high] = *row.range;
  return cat(whole_bound(low),
             std::isinf(high) ? " or more" : cat(" to ", whole_bound(high)));
}

// Returns what is wrong with a text, or "" after replacing it by the same
// number without a sign or leading zeros, which the library misreads.
template <class Number>
std::string settle_number(std::string& text, const OptionRow& row) {
  const char* kind = std::is_integral_v<Number> ? "a whole number" : "a number";
  std::string_view digits = text;
  if (digits.starts_with('+')) digits.remove_prefix(1);
  Number number{};
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, number);
  if (stop != end || digits.empty() || error == std::errc::invalid_argument)
    return cat("expected ", kind, ", found ", quoted(text));
  if (error == std::errc::result_out_of_range)
    return cat("expected ",
               row.range
                   ? range_text(row)
                   : cat(kind, " from ", std::numeric_limits<Number>::lowest(),
                         " to ", std::numeric_limits<Number>::max()),
               ", found ", quoted(text));
  if constexpr (std::is_integral_v<Number>)
    text = cat(number);
  else if (!std::isfinite(number))
    return cat("expected ", kind, " that is finite, found ", quoted(text));
  return "";
}

// Makes a number refuse, by its option's name, text that is none or is beyond
// its type. (The library itself takes the nearest number, and 010 as 8.)
struct RequireNumber {
  CLI::Option& option;
  const OptionRow& row;

  template <class Number>
  void require() const {
    option.transform(CLI::Validator(
        [row = row](std::string& text) {
          return settle_number<Number>(text, row);
        },
        ""));
  }
  void operator()(const int*) const { require<int>(); }
  void operator()(const int64_t*) const { require<int64_t>(); }
  void operator()(const double*) const { require<double>(); }
  void operator()(const std::optional<int64_t>*) const {
    if (!row.text) require<int64_t>();
  }
  void operator()(const void*) const {}
};

struct DefaultText {
  std::string operator()(const int* number) const { return cat(*number); }
  std::string operator()(const int64_t* number) const { return cat(*number); }
  std::string operator()(const double* number) const { return cat(*number); }
  std::string operator()(const std::string* text) const { return *text; }
  std::string operator()(const void*) const { return ""; }
};

// Switches, arguments and required options show no default.
std::string default_text(const OptionRow& row) {
  if (row.shown_default) return *row.shown_default;
  const bool has_one =
      !row.is_switch && !row.is_required && !row.is_argument();
  return has_one ? std::visit(DefaultText{}, row.value) : "";
}

struct AddOption {
  CLI::App& app;
  const OptionRow& row;

  template <class Value>
  CLI::Option* operator()(Value* value) const {
    constexpr bool may_be_switch =
        std::is_same_v<Value, bool> || std::is_same_v<Value, std::string>;
    if constexpr (may_be_switch)
      if (row.is_switch) return app.add_flag(row.name, *value, row.full_help());
    if (row.text) return app.add_option(row.name, *row.text, row.full_help());
    if constexpr (std::is_same_v<Value, std::optional<double>>)
      throw InternalError(cat(row.name, ": declare it by number()"));
    else
      return app.add_option(row.name, *value, row.full_help());
  }
};

void declare_one(CLI::App& app, const OptionRow& row) {
  CLI::Option* option = std::visit(AddOption{app, row}, row.value);
  option->group(row.group)->required(row.is_required);
  if (!row.label.empty()) option->option_text(row.label);
  // A list takes one word each time that the option is given.
  if (!row.is_argument() && !row.is_switch) option->allow_extra_args(false);
  std::visit(RequireNumber{*option, row}, row.value);
  if (row.is_switch && std::holds_alternative<bool*>(row.value))
    option->disable_flag_override();
  if (!row.words.empty()) option->type_name(kOfferMark + join(row.words, " "));
}

// Tokens may be counted in K, M or G: "4M" is 4 x 1024 x 1024. Returns other
// text as it is.
std::string expanded_tokens(const std::string& text) {
  constexpr std::string_view kUnits = "KMG";
  constexpr size_t kMostDigits =
      6;  // beyond which no number of tokens is meant
  const size_t unit = text.empty() ? kUnits.npos : kUnits.find(text.back());
  const std::string digits = text.substr(0, text.empty() ? 0 : text.size() - 1);
  if (unit == kUnits.npos || digits.empty() || digits.size() > kMostDigits ||
      digits.find_first_not_of("0123456789") != digits.npos)
    return text;
  return cat(std::stoll(digits) << (10 * (unit + 1)));
}

struct Settle {
  const OptionRow& row;

  template <class Whole>
  void check_range(Whole number) const {
    const auto low = static_cast<int64_t>(row.range->first);
    const int64_t high = whole_bound(row.range->second);
    if (number >= low && number <= high) return;
    throw UsageError(
        cat(row.name, " ", number, ": expected ", range_text(row)));
  }
  void operator()(const int* number) const {
    if (row.range) check_range(*number);
  }
  void operator()(const int64_t* number) const {
    if (row.range) check_range(*number);
  }
  void operator()(std::optional<int64_t>* number) const {
    if (!row.text || row.text->empty()) return;
    const std::string text =
        row.label == "TOKENS" ? expanded_tokens(*row.text) : *row.text;
    *number = parse_integer(text, whole_bound(row.range->first),
                            whole_bound(row.range->second), row.name);
  }
  void operator()(std::optional<double>* number) const {
    if (row.text->empty()) return;
    *number =
        parse_number(*row.text, row.range->first, row.range->second, row.name);
  }
  void operator()(const std::string* word) const {
    if (!row.is_strict || word->empty()) return;
    if (std::ranges::find(row.words, *word) == row.words.end())
      throw UsageError(cat(row.name, " ", quoted(*word), ": expected ",
                           alternatives(row.words),
                           did_you_mean(*word, row.words)));
  }
  void operator()(const void*) const {}
};

}  // namespace

std::string alternatives(const std::vector<std::string>& words) {
  const std::vector<std::string> first(words.begin(), words.end() - 1);
  return first.empty() ? words.back()
                       : cat(join(first, ", "), " or ", words.back());
}

OptionRow OptionRow::between(double low, double high) && {
  range = {low, high};
  return std::move(*this);
}

OptionRow OptionRow::at_least(double low) && {
  return std::move(*this).between(low, std::numeric_limits<double>::infinity());
}

OptionRow OptionRow::offering(std::vector<std::string> all) && {
  words = std::move(all);
  return std::move(*this);
}

OptionRow OptionRow::one_of(std::vector<std::string> all) && {
  lists_words = true;
  return std::move(*this).offering(std::move(all));
}

OptionRow OptionRow::only(std::vector<std::string> all) && {
  is_strict = true;
  return std::move(*this).offering(std::move(all));
}

OptionRow OptionRow::by_default(std::string shown) && {
  shown_default = std::move(shown);
  return std::move(*this);
}

OptionRow OptionRow::required() && {
  is_required = true;
  return std::move(*this);
}

std::string OptionRow::full_help() const {
  const std::string usual = default_text(*this);
  return cat(help, lists_words ? cat(": ", alternatives(words)) : "",
             usual.empty() ? "" : cat(" [", usual, "]"));
}

OptionRow json_flag(bool& json) {
  return flag("--json", json, "print one JSON object instead of text");
}

OptionRow device_option(std::string& device, std::string help) {
  return option("--device", device, "DEVICE", std::move(help))
      .only(device_names());
}

OptionRows in_group(const char* heading, OptionRows rows) {
  for (OptionRow& row : rows) row.group = heading;
  return rows;
}

OptionRows joined(std::vector<OptionRows> parts) {
  OptionRows all;
  for (OptionRows& part : parts)
    for (OptionRow& row : part) all.push_back(std::move(row));
  return all;
}

void declare(CLI::App& app, const OptionRows& rows) {
  for (const OptionRow& row : rows) declare_one(app, row);
}

void settle(const OptionRows& rows) {
  for (const OptionRow& row : rows) std::visit(Settle{row}, row.value);
}

Offer offer_of(const CLI::Option& option) {
  Offer offer;
  const std::string type = option.get_type_name();
  if (type.starts_with(kOfferMark))
    offer.words = split_text(type.substr(std::string(kOfferMark).size()), ' ');
  const bool named = option.nonpositional();
  const std::string label =
      named ? option.get_option_text() : option.get_name(true, false);
  if (label == "DEVICE" && offer.words.empty()) offer.words = device_names();
  if (label == "MODEL") append_names(presets(), offer.words);
  if (label == "RULE" && offer.words.empty())
    append_names(rule_table(), offer.words);
  offer.files =
      label == "MODEL" || label == "FILE" || label == "PLAN" || label == "PATH";
  offer.folders = label == "DIR" || label == "RUN" || label == "FOLDER" ||
                  label == "SECOND";
  return offer;
}

}  // namespace canzona::cli

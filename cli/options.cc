#include "cli/options.h"

#include "canzona/base/text.h"
#include "canzona/rules/facts.h"
#include "canzona/shapes/read_model.h"

namespace canzona::cli {
namespace {

// The type's name is the option's place for such words; help does not show it.
constexpr const char* kOfferMark = "one of ";

template <class Entries>
void append_names(const Entries& entries, std::vector<std::string>& names) {
  for (const auto& entry : entries) names.push_back(entry.name);
}

}  // namespace

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

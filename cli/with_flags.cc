#include "cli/with_flags.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/rules/facts.h"

namespace canzona::cli {
namespace {

// A rule's options have names of their own, such as precision, which some verbs
// know as well.
bool is_rule_option(const std::string& name) {
  for (const RuleEntry& rule : rule_table())
    for (const OptionFact& option : rule.options)
      if (option.name == name) return true;
  return false;
}

const CLI::Option* option_of(const CLI::App& app, const std::string& name) {
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent())
    if (const CLI::Option* found = at->get_option_no_throw("--" + name))
      return found;
  return nullptr;
}

size_t begin_of_name(const std::string& word) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  return std::min(word.find_first_of(kLetters), word.size());
}

// One word of a library's message: "zero=all", "(batch.micro=2)".
std::string word_with_flag(const CLI::App& app, const std::string& word) {
  const size_t begin = begin_of_name(word);
  const size_t equals = word.find('=', begin);
  if (equals == std::string::npos) return word;
  const std::string name = word.substr(begin, equals - begin);
  if (name.find('.') != std::string::npos)
    return option_of(app, "set") == nullptr
               ? word
               : cat(word.substr(0, begin), "--set ", word.substr(begin));
  const CLI::Option* option = option_of(app, name);
  if (option == nullptr || is_rule_option(name)) return word;
  const std::string rest = word.substr(equals + 1);
  const bool is_switch = option->get_items_expected_max() == 0;
  return cat(
      word.substr(0, begin), "--", name,
      is_switch ? rest.substr(rest.starts_with("on") ? 2 : 0) : " " + rest);
}

bool is_part_of_word(const std::string& text, size_t at) {
  return at < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[at])) != 0);
}

using Places = std::vector<bool>;  // of a message's characters

// Marks what quoted() wrote. An apostrophe stands behind a letter, or before
// one ("a rank's"); a quote that is never closed is none.
void mark_quotes(const std::string& message, Places& marked) {
  size_t begin = std::string::npos;
  for (size_t i = 0; i < message.size(); ++i) {
    if (message[i] != '\'') continue;
    const bool is_open = begin != std::string::npos;
    if (!is_open && (i == 0 || !is_part_of_word(message, i - 1))) {
      begin = i;
    } else if (is_open && !is_part_of_word(message, i + 1)) {
      std::fill(marked.begin() + static_cast<std::ptrdiff_t>(begin),
                marked.begin() + static_cast<std::ptrdiff_t>(i), true);
      begin = std::string::npos;
    }
  }
}

// Marks what the user gave and the library repeats without quotes, as far as
// it could be taken for options: names of files may be anything.
void mark_given(const CLI::App& app, const std::string& message,
                Places& marked) {
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent())
    for (const CLI::Option* option : at->get_options())
      for (const std::string& value : option->results()) {
        const bool is_like_option =
            value.find_first_of("= ") != std::string::npos;
        if (!is_like_option && !message.starts_with(value + ":")) continue;
        for (size_t i = message.find(value); i != std::string::npos;
             i = message.find(value, i + value.size()))
          std::fill_n(marked.begin() + static_cast<std::ptrdiff_t>(i),
                      value.size(), true);
      }
}

}  // namespace

std::string with_flags(const CLI::App& app, const std::string& message) {
  Places stays(message.size() + 1, false);
  mark_quotes(message, stays);
  mark_given(app, message, stays);
  std::vector<std::string> words = split_text(message, ' ');
  // "teams 3: …", "mesh: …", but not "mesh (--set): …"
  const std::string first = words[0].substr(0, words[0].find(':'));
  const CLI::Option* option = option_of(app, first);
  const bool begins_with_option =
      words.size() > 1 && !stays[0] && !words[1].starts_with("(") &&
      !first.starts_with("-") && option != nullptr && option->count() > 0;
  size_t at = 0;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i];
    const bool after_try = i > 0 && words[i - 1] == "try";
    const bool has_dot = word.find('.') < word.find('=');
    if ((!has_dot || after_try) && !stays[at + begin_of_name(word)])
      words[i] = word_with_flag(app, word);
    at += word.size() + 1;
  }
  if (begins_with_option) words[0] = "--" + words[0];
  return join(words, " ");
}

}  // namespace canzona::cli

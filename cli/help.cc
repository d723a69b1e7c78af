#include "cli/help.h"

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/terminal_style.h"

namespace canzona::cli {
namespace {

constexpr size_t kColumn = 32;
constexpr const char* kGeneral = "Options";  // the library's own default

// "  -o, --output FILE" for options, "  FILE" for what has no dashes.
std::string left_side(const CLI::Option& option) {
  const bool plain = !option.nonpositional();
  const std::string name =
      plain ? option.get_name(true, false) : option.get_name(false, true);
  std::string out = "  ";
  if (!plain && option.get_snames().empty()) out += "    ";  // under "-o, "
  for (const char c : name)
    out += c == ',' ? std::string(", ") : std::string(1, c);
  return option.get_option_text().empty()
             ? out
             : out + " " + option.get_option_text();
}

std::string entry(const std::string& left, const std::string& description) {
  std::string out = pad_right(left, kColumn);
  if (display_width(left) + 2 > kColumn)
    out = left + "\n" + std::string(kColumn, ' ');
  return out + wrap(description, kPageWidth - kColumn, kColumn) + "\n";
}

std::string group_lines(const CLI::App& app, const std::string& group) {
  std::string out;
  for (const CLI::Option* option : app.get_options())
    if (option->get_group() == group && option->nonpositional())
      out += entry(left_side(*option), option->get_description());
  return out;
}

std::string group_text(const CLI::App& app, const std::string& group) {
  const std::string lines = group_lines(app, group);
  return lines.empty() ? lines : "\n" + group + ":\n" + lines;
}

const CLI::App& root_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app : root_of(*app.get_parent());
}

// Options of the verb itself, then those that every verb takes.
std::string general(const CLI::App& app) {
  if (app.get_parent() == nullptr) return group_text(app, kGeneral);
  std::string own;
  for (const CLI::Option* option : app.get_options())
    if (option->get_group() == kGeneral && option->nonpositional() &&
        option != app.get_help_ptr())
      own += entry(left_side(*option), option->get_description());
  return (own.empty() ? own : std::string("\nOptions:\n") + own) +
         "\nEverywhere:\n" + group_lines(root_of(app), kGeneral);
}

std::string usage(const CLI::App& app, const std::string& name) {
  std::string out = "Usage: " + name;
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) continue;
    const std::string label = option->get_name(true, false);
    out += option->get_required() ? " " + label : " [" + label + "]";
  }
  if (!app.get_subcommands({}).empty())
    out += app.get_parent() == nullptr ? " VERB" : " [VERB]";
  return out + " [OPTIONS]\n";
}

std::string plain_arguments(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : app.get_options())
    if (!option->nonpositional())
      out += entry("  " + option->get_name(true, false),
                   option->get_description());
  return out.empty() ? out : "\n" + out;
}

std::string verbs(const CLI::App& app) {
  std::string out;
  for (const CLI::App* verb : app.get_subcommands({}))
    out += entry("  " + verb->get_name(), verb->get_description());
  return out.empty() ? out : "\nVerbs:\n" + out;
}

}  // namespace

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode /*mode*/) const {
  std::string out = app->get_description() + "\n\n" + usage(*app, name) +
                    plain_arguments(*app) + verbs(*app);
  for (const std::string& group : app->get_groups())
    if (!group.empty() && group != kGeneral) out += group_text(*app, group);
  out += general(*app);
  const std::string footer = app->get_footer();
  return footer.empty() ? out : out + "\n" + footer + "\n";
}

}  // namespace canzona::cli


#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/terminal.h"
#include "cli/command_line.h"
#include "cli/verbs.h"
#include "cli/version.h"

namespace canzona::cli {
namespace {

constexpr size_t kColumn = 32;
constexpr const char* kGeneral = "Options";  // the library's own default

// " -o, --output FILE" for options, " FILE" for positionals.
std::string left_side(const CLI::Option& option) {
  const bool plain = !option.nonpositional();
  const std::string name =
      plain ? option.get_name(true, false) : option.get_name(false, true);
  std::string out = "  ";
  if (!plain && option.get_snames().empty())
    out += "    ";  // aligned below
                    // "-o, "
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

// Shows options of the verb itself, then those that every verb takes.
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

// `canzona man`: the manual page, made from the same texts as --help.
namespace {

constexpr const char* kManExamples =
    R"(Examples:
  canzona man | man -l -
  canzona man > ~/.local/share/man/man1/canzona.1
)";

// Escapes text for roff, so that no character of it is a command.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool line_start = out.empty() || out.back() == '\n';
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
  }
  return out;
}

std::string option_entry(const CLI::Option& option) {
  const bool plain = !option.nonpositional();
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames())
    names.push_back("-" + name);
  for (const std::string& name : option.get_lnames())
    names.push_back("--" + name);
  const std::string left =
      plain ? option.get_name(true, false) : join(names, ", ");
  return cat(".TP\n.B ", roff(left), " ", roff(option.get_option_text()), "\n",
             roff(option.get_description()), "\n");
}

std::string options_text(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : app.get_options())
    if (option != app.get_help_ptr()) out += option_entry(*option);
  return out;
}

// Examples and lists, with their line breaks kept.
std::string footer_text(const CLI::App& app) {
  return cat(".PP\n.nf\n", roff(app.get_footer()), "\n.fi\n");
}

// Documents a verb and its subcommands.
std::string verb_text(const CLI::App& verb, const std::string& path) {
  const std::string name = path + " " + verb.get_name();
  std::string out = cat(".SH ", roff(name), "\n", roff(verb.get_description()),
                        ".\n", options_text(verb), footer_text(verb));
  for (const CLI::App* below : verb.get_subcommands({}))
    out += verb_text(*below, name);
  return out;
}

std::string man_page(const CLI::App& root) {
  std::string out =
      cat(".TH CANZONA 1 \"\" \"canzona ", kVersion, "\" \"User Commands\"\n",
          ".SH NAME\ncanzona \\- trains and plans with matrix\\-based "
          "optimizers over a mesh of ranks\n.SH SYNOPSIS\n.B canzona\nVERB "
          "[OPTIONS]\n.SH DESCRIPTION\n",
          roff(root.get_description()), "\n", footer_text(root),
          ".SH OPTIONS\nEvery verb takes these.\n", options_text(root));
  for (const CLI::App* verb : root.get_subcommands({}))
    out += verb_text(*verb, "CANZONA");
  return out;
}

}  // namespace

Verb add_man(CLI::App& root) {
  return add_verb(root, {.name = "man",
                         .description = "print the manual page",
                         .footer = kManExamples,
                         .run = [&root](const Output& out) {
                           out.result(man_page(root));
                           return Outcome::kDone;
                         }});
}

}  // namespace canzona::cli

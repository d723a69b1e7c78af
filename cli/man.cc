// `canzona man`: the manual page, made from the same words as --help.
#include "canzona/base/text.h"
#include "cli/verbs.h"
#include "cli/version.h"

namespace canzona::cli {
namespace {

constexpr const char* kManExamples =
    R"(Examples:
  canzona man | man -l -
  canzona man > ~/.local/share/man/man1/canzona.1
)";

// Text as roff prints it: no character of it is a command.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool line_start = out.empty() || out.back() == '\n';
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
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

// Examples and lists, with their lines kept.
std::string footer_text(const CLI::App& app) {
  return cat(".PP\n.nf\n", roff(app.get_footer()), "\n.fi\n");
}

// A verb and those below it.
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
  CLI::App* app = root.add_subcommand("man", "print the manual page");
  app->footer(kManExamples);
  return {app, [&root](const Output& out) {
            out.result(man_page(root));
            return Outcome::kDone;
          }};
}

}  // namespace canzona::cli

#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/report/terminal.h"
#include "cli/command_line.h"
#include "cli/options.h"
#include "cli/verbs.h"

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

// `canzona completion`: a script with completions for a shell. All words come
// from the tree of options, values from what options offer (options.h).

namespace {

constexpr const char* kCompletionExamples =
    R"(Examples:
  source <(canzona completion bash)
  canzona completion bash > ~/.local/share/bash-completion/completions/canzona
  canzona completion zsh > ~/.zfunc/_canzona        with ~/.zfunc in fpath
  canzona completion fish > ~/.config/fish/completions/canzona.fish
)";

// A verb with the words that lead to it: "bench step"; empty for the root.
struct Place {
  std::string path;
  const CLI::App* app = nullptr;

  // "bench/step": the words before, and the word itself.
  std::string met() const {
    const size_t last = path.rfind(' ');
    return cat(last == std::string::npos ? "" : path.substr(0, last), "/",
               app->get_name());
  }
};

void add_places(const CLI::App& app, const std::string& path,
                std::vector<Place>& out) {
  out.push_back({path, &app});
  const std::string above = path.empty() ? path : path + " ";
  for (const CLI::App* below : app.get_subcommands({}))
    add_places(*below, above + below->get_name(), out);
}

std::vector<Place> places_of(const CLI::App& root) {
  std::vector<Place> out;
  add_places(root, "", out);
  return out;
}

// Returns the text in single quotes, which all three shells read alike except
// for the quote itself.
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text)
    out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::vector<std::string> dashed_names(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames())
    names.push_back("-" + name);
  for (const std::string& name : option.get_lnames())
    names.push_back("--" + name);
  return names;
}

bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0;
}

std::string kinds_of(const Offer& offer) {
  return cat(offer.files ? "f" : "", offer.folders ? "d" : "");
}

// 'path/verb') at='path verb' ;;
std::string path_cases(const std::vector<Place>& places) {
  std::string out;
  for (const Place& place : places)
    if (!place.path.empty())
      out += cat("      ", shell_quoted(place.met()),
                 ") at=", shell_quoted(place.path), " ;;\n");
  return out;
}

// 'path:--option') offered='…' kinds='f' ;; Options of the root are allowed
// anywhere.
std::string value_cases(const std::vector<Place>& places) {
  std::string out;
  for (const Place& place : places)
    for (const CLI::Option* option : place.app->get_options()) {
      if (!option->nonpositional() || !takes_value(*option)) continue;
      const Offer offer = offer_of(*option);
      std::vector<std::string> patterns;
      for (const std::string& name : dashed_names(*option))
        patterns.push_back(place.path.empty()
                               ? "*" + shell_quoted(":" + name)
                               : shell_quoted(place.path + ":" + name));
      out += cat("    ", join(patterns, "|"),
                 ") offered=", shell_quoted(join(offer.words, " ")),
                 " kinds=", shell_quoted(kinds_of(offer)), " ;;\n");
    }
  return out;
}

std::vector<std::string> completed_options(const CLI::App& app) {
  std::vector<std::string> out;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      out.push_back("--" + name);
  return out;
}

// Returns subcommands, and what positional options offer.
Offer plain_words(const CLI::App& app) {
  Offer all;
  for (const CLI::App* below : app.get_subcommands({}))
    all.words.push_back(below->get_name());
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional()) continue;
    const Offer one = offer_of(*option);
    all.words.insert(all.words.end(), one.words.begin(), one.words.end());
    all.files |= one.files;
    all.folders |= one.folders;
  }
  return all;
}

// 'path') offered='…' dashed='--…' kinds='' ;;
std::string word_cases(const std::vector<Place>& places) {
  std::string out;
  for (const Place& place : places) {
    const Offer plain = plain_words(*place.app);
    std::string dashed = join(completed_options(*place.app), " ");
    if (!place.path.empty())
      dashed += " " + join(completed_options(*places.front().app), " ");
    out += cat("      ", shell_quoted(place.path),
               ") offered=", shell_quoted(join(plain.words, " ")),
               " dashed=", shell_quoted(dashed),
               " kinds=", shell_quoted(kinds_of(plain)), " ;;\n");
  }
  return out;
}

// Shared by bash and zsh: maps the words before to the words to offer.
std::string tables(const std::vector<Place>& places) {
  return cat("  case \"$at:$previous\" in\n", value_cases(places),
             "    *)\n      case \"$at\" in\n", word_cases(places),
             "      esac\n      case \"$current\" in -*) "
             "offered=\"$dashed\" kinds='' ;; esac ;;\n  esac\n");
}

std::string bash_script(const std::vector<Place>& places) {
  return cat(
      "# Completion of canzona for bash.\n_canzona() {\n",
      "  local current=\"${COMP_WORDS[COMP_CWORD]}\" at='' offered='' "
      "dashed='' kinds='' i\n",
      "  local previous=\"${COMP_WORDS[COMP_CWORD-1]}\"\n",
      "  # --option=value comes as three words.\n",
      "  if [ \"$current\" = = ]; then\n    current=''\n",
      "  elif [ \"$previous\" = = ]; then\n",
      "    previous=\"${COMP_WORDS[COMP_CWORD-2]}\"\n  fi\n",
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n",
      "    case \"$at/${COMP_WORDS[i]}\" in\n", path_cases(places),
      "    esac\n  done\n", tables(places), "  local IFS=$'\\n'\n",
      "  COMPREPLY=($(IFS=' '; compgen -W \"$offered\" -- \"$current\"))\n",
      "  case \"$kinds\" in *[fd]*) compopt -o filenames 2>/dev/null ;; esac\n",
      "  case \"$kinds\" in\n",
      "    *f*) COMPREPLY+=($(compgen -f -- \"$current\")) ;;\n",
      "    *d*) COMPREPLY+=($(compgen -d -- \"$current\")) ;;\n  esac\n}\n",
      "complete -F _canzona canzona\n");
}

std::string zsh_script(const std::vector<Place>& places) {
  return cat("#compdef canzona\n# Completion of canzona for zsh.\n",
             "_canzona() {\n",
             "  local at='' offered='' dashed='' kinds=''\n  integer i\n",
             "  local previous=${words[CURRENT-1]} current=${words[CURRENT]}\n",
             "  if [[ $current == --*=* ]]; then\n",
             "    previous=${current%%=*} current=''\n    compset -P '*='\n",
             "  fi\n", "  for ((i = 2; i < CURRENT; ++i)); do\n",
             "    case \"$at/${words[i]}\" in\n", path_cases(places),
             "    esac\n  done\n", tables(places), "  compadd -- ${=offered}\n",
             "  case \"$kinds\" in\n    *f*) _files ;;\n",
             "    *d*) _files -/ ;;\n  esac\n}\n",
             "if [ \"$funcstack[1]\" = _canzona ]; then\n",
             "  _canzona \"$@\"\nelse\n  compdef _canzona canzona\nfi\n");
}

// Returns words and files for one option or for positionals.
std::string fish_values(const Offer& offer) {
  std::string out = offer.files ? " -F" : "";
  std::string words = join(offer.words, " ");
  if (offer.folders) words += " (__fish_complete_directories)";
  return words.empty() ? out : cat(out, " -a ", shell_quoted(words));
}

std::string fish_option(const Place& place, const CLI::Option& option) {
  std::string out = "complete -c canzona";
  if (!place.path.empty())
    out += cat(" -n ", shell_quoted("__canzona_at " + place.path));
  for (const std::string& name : option.get_snames()) out += " -s " + name;
  for (const std::string& name : option.get_lnames()) out += " -l " + name;
  if (takes_value(option)) {
    const Offer offer = offer_of(option);
    out += (offer.files ? " -r" : " -x") + fish_values(offer);
  }
  return cat(out, " -d ", shell_quoted(option.get_description()), "\n");
}

std::string fish_place(const Place& place) {
  std::string out;
  const std::string here = cat("complete -c canzona -n ",
                               shell_quoted("__canzona_at " + place.path));
  for (const CLI::App* below : place.app->get_subcommands({}))
    out += cat(here, " -a ", below->get_name(), " -d ",
               shell_quoted(below->get_description()), "\n");
  for (const CLI::Option* option : place.app->get_options()) {
    const std::string values = fish_values(offer_of(*option));
    if (option->nonpositional())
      out += fish_option(place, *option);
    else if (!values.empty())
      out += here + values + "\n";
  }
  return out;
}

std::string fish_script(const std::vector<Place>& places) {
  std::string out =
      "# Completion of canzona for fish.\nfunction __canzona_path\n"
      "  set -l at\n  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$at/$word\"\n";
  for (const Place& place : places)
    if (!place.path.empty())
      out += cat("      case ", shell_quoted(place.met()), "\n        set at ",
                 shell_quoted(place.path), "\n");
  out +=
      "    end\n  end\n  echo \"$at\"\nend\n"
      "function __canzona_at\n  test (__canzona_path) = \"$argv\"\nend\n"
      "complete -c canzona -f\n";
  for (const Place& place : places) out += fish_place(place);
  return out;
}

const std::vector<std::string>& shells() {
  static const std::vector<std::string> names = {"bash", "zsh", "fish"};
  return names;
}

Outcome run(const std::string& shell, const CLI::App& root, const Output& out) {
  const std::vector<Place> places = places_of(root);
  if (shell == "bash") {
    out.result(bash_script(places));
  } else if (shell == "zsh") {
    out.result(zsh_script(places));
  } else if (shell == "fish") {
    out.result(fish_script(places));
  } else {
    throw UsageError(cat("shell ", quoted(shell),
                         ": expected bash, zsh or fish",
                         did_you_mean(shell, shells())));
  }
  return Outcome::kDone;
}

}  // namespace

Verb add_completion(CLI::App& root) {
  auto shell = std::make_shared<std::string>();
  return add_verb(root,
                  {.name = "completion",
                   .description = "print a shell completion script",
                   .options = {argument("SHELL", *shell, "bash, zsh or fish")
                                   .offering(shells())
                                   .required()},
                   .footer = kCompletionExamples,
                   .run = [shell, &root](const Output& out) {
                     return run(*shell, root, out);
                   }});
}

}  // namespace canzona::cli

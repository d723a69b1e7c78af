// `canzona completion`: a script that teaches a shell our words.
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/plan/make_plan.h"
#include "canzona/rules/facts.h"
#include "canzona/shapes/read_model.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kExamples =
    R"(Examples:
  source <(canzona completion bash)
  canzona completion bash > ~/.local/share/bash-completion/completions/canzona
)";

template <class Entries>
std::string names_of(const Entries& entries) {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const auto& entry : entries) names.push_back(entry.name);
  return join(names, " ");
}

std::string options_of(const CLI::App& app) {
  std::vector<std::string> words;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      words.push_back("--" + name);
  return join(words, " ");
}

// The verbs below a verb, with their options.
std::string words_below(const CLI::App& verb) {
  std::string words;
  for (const CLI::App* below : verb.get_subcommands({}))
    words += below->get_name() + " " + options_of(*below) + " ";
  return words;
}

// After these words comes one of a known few.
std::string values_cases() {
  const auto line = [](const char* option, const std::string& words) {
    return cat("    ", option, ") words='", words, "' ;;\n");
  };
  return line("--model|models", names_of(presets())) +
         line("--rule", names_of(rule_table())) +
         line("rules", names_of(rule_table()) + " check") +
         line("--strategy|--strategies", names_of(strategies())) +
         line("--micro-groups", join(micro_group_modes(), " ")) +
         line("--weight", "numel flops cost") +
         line("--parameters", "bf16 fp32") +
         line("--newton-schulz", "standard symmetric gram auto") +
         line("bench", "transform rule step") +
         line("--transport", "thread mpi") +
         line("--gradients", "exact random") + line("--wire", "fp32 bf16") +
         line("--split", "none qkv head gate-up expert") +
         line("--color", "auto always never") + line("completion", "bash");
}

std::string bash_script(const CLI::App& root) {
  std::string verbs, cases;
  for (const CLI::App* verb : root.get_subcommands({})) {
    verbs += verb->get_name() + " ";
    cases += cat("        ", verb->get_name(), ") words='", words_below(*verb),
                 options_of(*verb), " ", options_of(root), "' ;;\n");
  }
  return cat("# Completion of canzona for bash.\n_canzona() {\n",
             "  local current=\"${COMP_WORDS[COMP_CWORD]}\" words=''\n",
             "  case \"${COMP_WORDS[COMP_CWORD-1]}\" in\n", values_cases(),
             "    *)\n      case \"${COMP_WORDS[1]}\" in\n", cases,
             "        *) words='", verbs, options_of(root), "' ;;\n",
             "      esac ;;\n  esac\n",
             "  COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}\n",
             "complete -o default -F _canzona canzona\n");
}

Outcome run(const std::string& shell, const CLI::App& root, const Output& out) {
  if (shell != "bash")
    throw UsageError(cat("shell ", quoted(shell), ": expected bash"));
  out.result(bash_script(root));
  return Outcome::kDone;
}

}  // namespace

Verb add_completion(CLI::App& root) {
  CLI::App* app = root.add_subcommand(
      "completion", "print a script that completes words in a shell");
  auto shell = std::make_shared<std::string>();
  app->add_option("SHELL", *shell, "bash")->required();
  app->footer(kExamples);
  return {app,
          [shell, &root](const Output& out) { return run(*shell, root, out); }};
}

}  // namespace canzona::cli

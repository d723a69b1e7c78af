#include "cli/command_line.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "cli/former_run.h"
#include "cli/options.h"
#include "cli/version.h"
#include "cli/with_flags.h"

namespace canzona::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDescription =
    "Trains language models with matrix-based optimizers (Muon, Shampoo, SOAP) "
    "on a mesh of ranks,\nand plans such training: who computes which matrix, "
    "what moves, what it costs.";

constexpr const char* kCommandLineExamples =
    R"(Examples:
  canzona train --data book.txt --run runs/one        a small model, on all cores
  mpirun -n 4 canzona train --data book.txt --run runs/two    on processes
  canzona report runs/one --html one.html             how the run went
  canzona plan --model qwen3-32b --fused --mesh dp=32,tp=8 --rule muon -o plan.json
  canzona compare --model qwen3-32b --fused --mesh dp=32,tp=8 --html compare.html
  canzona explain plan.json --rank 17
  canzona VERB --help

Exit status: 0 success, 1 failed or invalid, 2 invalid request, 3 a checkpoint or data was
refused or lost, 4 a rank was lost, 5 the run diverged (non-finite numbers or a spike), 6 output
could not be written, 130 or 143 interrupted by SIGINT or SIGTERM.)";

std::string version_text() {
  return cat("canzona ", kVersion, "\ncommit ", kCommit, "\nbuild ", kBuildType,
             ", ", kCompiler, ", ", kBuildOptions, "\n");
}

// The library would take the next word as the value after "--name=".
std::vector<std::string> with_empty_values(
    const std::vector<std::string>& arguments) {
  std::vector<std::string> out;
  for (const std::string& word : arguments) {
    const bool empty_value = word.size() > 3 && word.starts_with("--") &&
                             word.find('=') == word.size() - 1;
    out.push_back(empty_value ? word.substr(0, word.size() - 1) : word);
    if (empty_value) out.emplace_back();
  }
  return out;
}

std::string see_help(const CLI::App& app) {
  std::string path;
  for (const CLI::App* at = &app; at->get_parent() != nullptr;
       at = at->get_parent())
    path = at->get_name() + " " + path;
  return cat("; see canzona ", path, "--help");
}

// "canzona bench step"
std::string full_name(const CLI::App& app) {
  return app.get_parent() == nullptr
             ? app.get_name()
             : cat(full_name(*app.get_parent()), " ", app.get_name());
}

std::vector<std::string> long_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent())
    for (const CLI::Option* option : at->get_options())
      for (const std::string& name : option->get_lnames())
        names.push_back("--" + name);
  return names;
}

std::vector<std::string> verb_names(const CLI::App& root) {
  std::vector<std::string> names;
  for (const CLI::App* verb : root.get_subcommands({}))
    names.push_back(verb->get_name());
  return names;
}

// For a bare file name: suggests the option that it may have been meant for.
std::string file_advice(const CLI::App& app, const std::string& word) {
  std::error_code ignored;
  if (!std::filesystem::exists(word, ignored)) return "";
  for (const char* name : {"--data", "--model"})
    if (app.get_option_no_throw(name) != nullptr)
      return cat("; did you mean ", name, " ", printable(word), "?");
  return "";
}

[[noreturn]] void refuse_early_option(const CLI::App& verb,
                                      const std::string& name) {
  throw UsageError(cat(full_name(verb), " takes ", name,
                       " only after the word ", verb.get_name(),
                       see_help(verb)));
}

// Words for options that other programs have under other names, where the verb
// has the option that is needed instead.
struct UsualName {
  std::vector<const char*> names;
  const char* needed;
  const char* advice;
};
const std::vector<UsualName>& usual_names() {
  static const std::vector<UsualName> names = {
      {{"--lr"},
       "--learning-rate",
       "--learning-rate RATE is that of the matrices (rule.learning_rate), "
       "--set adamw.learning_rate=RATE that of all other tensors"},
      {{"--batch-size", "--batch", "--global-batch-size"},
       "--set",
       "--set batch.global=N sets the sequences of a step, over all ranks, "
       "--set batch.micro=N those of one forward and backward"},
      {{"--epochs", "--num-epochs", "--max-steps", "--iters", "--iterations"},
       "--steps",
       "--steps N sets the length of a run in optimizer steps"},
      {{"--optimizer", "--optim"},
       "--rule",
       "--rule RULE chooses the optimizer of the matrices"},
      {{"--weight-decay", "--wd"},
       "--set",
       "--set rule.weight_decay=X is that of the matrices, --set "
       "adamw.weight_decay=X that of all other tensors"},
      {{"--warmup", "--warmup-steps"},
       "--set",
       "--set schedule.warmup=N sets the steps over which rates rise"},
      {{"--seq-len", "--seq-length", "--block-size", "--context-length"},
       "--set",
       "--set model.length=N sets the tokens of a sequence"},
      {{"--grad-clip", "--clip", "--max-grad-norm"},
       "--set",
       "--set clip=X sets the norm that gradients are clipped to"},
      {{"--output-dir", "--out-dir", "--output", "--out"},
       "--run",
       "--run DIR is the folder of a run"}};
  return names;
}

// Returns the advice for an unknown option, or "".
std::string usual_advice(const CLI::App& app, std::string name) {
  std::ranges::replace(name, '_', '-');
  for (const UsualName& usual : usual_names())
    if (app.get_option_no_throw(usual.needed) != nullptr &&
        std::ranges::find(usual.names, name) != usual.names.end())
      return cat(": ", usual.advice);
  return "";
}

// Refuses a word that is neither a verb nor an option.
[[noreturn]] void refuse_word(const CLI::App& root, const CLI::App& app,
                              const std::string& word) {
  if (word.starts_with("-")) {
    const std::string name = word.substr(0, word.find('='));
    if (app.get_option_no_throw(name) != nullptr)
      refuse_early_option(app, name);
    const std::string advice = usual_advice(app, name);
    throw UsageError(
        cat("unknown option ", quoted(name),
            advice.empty() ? did_you_mean(name, long_options(app)) : advice,
            see_help(app)));
  }
  if (const std::vector<std::string> verbs = verb_names(app);
      &app != &root && !verbs.empty())
    throw UsageError(cat(full_name(app), " ", quoted(word), ": expected ",
                         alternatives(verbs), did_you_mean(word, verbs)));
  if (&app != &root)
    throw UsageError(cat("unexpected word ", quoted(word),
                         file_advice(app, word), see_help(app)));
  throw UsageError(cat("unknown verb ", quoted(word),
                       did_you_mean(word, verb_names(root)), "; verbs are ",
                       join(verb_names(root), ", ")));
}

// Finds an option of the verb or of those above it, or null.
const CLI::Option* find_option(const CLI::App& app, const std::string& name) {
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent())
    if (const CLI::Option* found = at->get_option_no_throw(name)) return found;
  return nullptr;
}

// Finds the option that a message of the library begins with; it may lack the
// dashes. Null if there is none.
const CLI::Option* first_option(const CLI::App& app, const std::string& text) {
  const std::string name = text.substr(0, text.find_first_of(": "));
  for (const std::string dashes : {"", "--", "-"})
    if (const CLI::Option* found = find_option(app, dashes + name))
      return found;
  return nullptr;
}

std::string needs_a_value(const CLI::Option& option) {
  const std::vector<std::string> words = offer_of(option).words;
  return cat(option.get_name(), " needs a value",
             words.empty() ? "" : ", such as " + alternatives(words));
}

// Refuses an option in the place of the value of another, as in "--resume
// --run DIR": the library takes any word. What "--" ends belongs to another
// program.
void refuse_options_as_values(const CLI::App& app,
                              const std::vector<std::string>& arguments) {
  for (size_t i = 1; i < arguments.size() && arguments[i - 1] != "--"; ++i) {
    const std::string& value = arguments[i];
    const CLI::Option* option = find_option(app, arguments[i - 1]);
    if (!value.starts_with("-") || option == nullptr ||
        !option->nonpositional() || option->get_items_expected_max() == 0 ||
        find_option(app, value.substr(0, value.find('='))) == nullptr)
      continue;
    throw UsageError(cat(needs_a_value(*option), ", but is followed by the ",
                         "option ", quoted(value), see_help(app)));
  }
}

// Explains that an option has too few values, or too many.
std::string count_of_values(const CLI::Option& option) {
  const std::string name = option.get_name();
  if (option.get_items_expected_max() == 0) return name + " takes no value";
  if (option.count() > 1)
    return cat(name, " is given ", option.count(), " times; expected once");
  return needs_a_value(option);
}

// Returns the library's message in the words of this program.
std::string words_of(const CLI::App& app, const CLI::ParseError& error) {
  const std::string text = printable(error.what());
  const CLI::Option* option = first_option(app, text);
  if (error.get_name() == "ArgumentMismatch" && option != nullptr)
    return count_of_values(*option);
  const std::vector<std::string> verbs = verb_names(app);
  if (error.get_name() == "RequiredError" && option == nullptr &&
      !verbs.empty())
    return cat(full_name(app), ": expected ", alternatives(verbs));
  return text;
}

// No option has a meaning for an empty value, and many treat it as "not given",
// so it is refused, for subcommands, too.
void require_values(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    const std::vector<std::string>& values = option->results();
    if (std::find(values.begin(), values.end(), "") != values.end())
      throw UsageError(
          cat(option->get_name(), " has an empty value", see_help(app)));
  }
  for (const CLI::App* verb : app.get_subcommands()) require_values(*verb);
}

bool writes_file(const CLI::Option* option) {
  constexpr auto kNames = std::to_array<std::string_view>(
      {"--output", "--html", "--trace", "--flight-record"});
  return std::ranges::find(kNames, option->get_name()) != kNames.end();
}

// True if writing `file` destroys what another option names: this file, or the
// folder of a run or a model that it is a part of.
bool would_destroy(const fs::path& file, const CLI::Option& other,
                   const fs::path& named) {
  std::error_code none;
  const Offer offer = offer_of(other);
  const auto is_named = [&](const fs::path& path) {
    return (offer.files || offer.folders) && fs::equivalent(path, named, none);
  };
  if (!fs::exists(file, none))
    return writes_file(&other) && fs::absolute(file).lexically_normal() ==
                                      fs::absolute(named).lexically_normal();
  return fs::is_regular_file(file, none) &&
         (is_named(file) || (file.filename() != "report.html" &&
                             is_of_a_run(file.filename().string()) &&
                             is_named(fs::absolute(file).parent_path())));
}

void refuse_lost_files(const CLI::App& app) {
  for (const CLI::Option* out : app.get_options(writes_file))
    for (const CLI::Option* other : app.get_options())
      for (const std::string& named : other->results())
        for (const std::string& file : out->results())
          if (other != out && would_destroy(file, *other, named))
            throw UsageError(cat(out->get_name(), " ", quoted(file),
                                 ": belongs to ", other->get_name(), " ",
                                 quoted(named),
                                 ", and would be lost; choose "
                                 "another file"));
}

// Returns the verb that the user named, or its subcommand.
const CLI::App& named(const CLI::App& app) {
  const std::vector<CLI::App*> verbs = app.get_subcommands();
  return verbs.empty() ? app : named(*verbs.back());
}

// Refuses plain words that `above` took because the verb below it does not.
void refuse_lost_words(const CLI::App& above, const CLI::App& verb) {
  for (const CLI::Option* option : above.get_options())
    if (option->count() > 0 && !option->nonpositional())
      throw UsageError(cat("unexpected word ", quoted(option->results().back()),
                           see_help(verb)));
}

// Returns the position of the first word that is neither an option of the root
// nor its value: that of the verb.
std::ptrdiff_t first_word(const CLI::App& root,
                          const std::vector<std::string>& arguments) {
  size_t at = 0;
  while (at < arguments.size() && arguments[at].starts_with("-")) {
    const CLI::Option* option = root.get_option_no_throw(arguments[at]);
    at += option != nullptr && option->get_items_expected_max() > 0 ? 2 : 1;
  }
  return static_cast<std::ptrdiff_t>(std::min(at, arguments.size()));
}

// Refuses a word in the place of one of a few that the verb knows.
void refuse_unknown_argument(const CLI::App& app, const CLI::Option& argument) {
  const Offer offer = offer_of(argument);
  if (offer.words.empty() || offer.files || offer.folders) return;
  std::vector<std::string> known = offer.words;
  for (const std::string& verb : verb_names(app))
    if (std::ranges::find(known, verb) == known.end()) known.push_back(verb);
  for (const std::string& word : argument.results())
    if (std::ranges::find(known, word) == known.end())
      throw UsageError(cat(full_name(app), " ", quoted(word), ": expected ",
                           alternatives(known), did_you_mean(word, known)));
}

// Help is for verbs that exist: words that name none are refused. An unknown
// option is not, because help lists the known ones.
void refuse_unknown_words(const CLI::App& root) {
  const CLI::App& app = named(root);
  for (const CLI::App* above = app.get_parent(); above != nullptr;
       above = above->get_parent())
    refuse_lost_words(*above, app);
  for (const CLI::Option* option : app.get_options())
    if (!option->nonpositional()) refuse_unknown_argument(app, *option);
  for (const std::string& word : root.remaining(true)) {
    if (word.starts_with("-")) return;  // what follows may be its value
    refuse_word(root, app, word);
  }
}

// Options and words of `above`, which takes what the verb below it does not
// know: it does not run, so they would be lost.
void refuse_lost_options(const CLI::App& above, const CLI::App& verb) {
  refuse_lost_words(above, verb);
  for (const CLI::Option* option : above.get_options()) {
    if (option->count() == 0) continue;
    const std::string name = option->get_name();
    if (verb.get_option_no_throw(name) != nullptr)
      refuse_early_option(verb, name);
    throw UsageError(cat(full_name(verb), " has no ", name,
                         ": it is an option of ", full_name(above),
                         see_help(verb)));
  }
}

}  // namespace

Verb add_verb(CLI::App& above, const VerbDeclaration& verb) {
  CLI::App* app = above.add_subcommand(verb.name, verb.description);
  declare(*app, verb.options);
  app->footer(verb.footer);
  std::vector<Verb> below;
  for (const auto& add : verb.below) below.push_back(add(*app));
  return {app, [app, below, options = verb.options,
                run = verb.run](const Output& out) {
            for (const Verb& named : below) {
              if (!named.app->parsed()) continue;
              refuse_lost_options(*app, *named.app);
              return named.run(out);
            }
            settle(options);
            return run(out);
          }};
}

CommandLine::CommandLine() : root_(kDescription, "canzona") {
  root_.formatter(std::make_shared<HelpFormatter>());
  root_.require_subcommand(0, 1);
  root_.fallthrough();
  root_.set_help_flag("-h,--help", "print this help");
  root_.set_version_flag("--version", version_text(),
                         "print version, commit and build options");
  declare(root_, {option("--color", color_, "WHEN", "colours")
                      .one_of({"auto", "always", "never"})
                      .by_default("auto; respects NO_COLOR"),
                  flag("--quiet", quiet_, "print results and errors only")});
  root_.footer(kCommandLineExamples);
  for (const auto add :
       {add_plan, add_compare, add_simulate, add_explain, add_validate,
        add_train, add_sample, add_eval, add_report, add_ckpt, add_config,
        add_models, add_rules, add_bench, add_calibrate, add_doctor,
        add_completion})
    verbs_.push_back(add(root_));
}

void CommandLine::parse(std::vector<std::string> arguments) {
  arguments = with_empty_values(arguments);
  // "help bench step" is "bench step --help".
  const auto verb = arguments.begin() + first_word(root_, arguments);
  if (verb != arguments.end() && *verb == "help") {
    arguments.erase(verb);
    arguments.emplace_back("--help");
  }
  // The library takes words from the end.
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    root_.parse(reversed);
  } catch (const CLI::CallForVersion& version) {
    page_ = version.what();
  } catch (const CLI::CallForHelp&) {
    refuse_unknown_words(root_);
    page_ = root_.help();
  } catch (const CLI::ParseError& error) {
    const CLI::App& app = named(root_);
    refuse_options_as_values(app, arguments);
    // The library also keeps "--", which every verb accepts.
    for (const std::string& word : root_.remaining(true))
      if (word != "--") refuse_word(root_, app, word);
    throw UsageError(cat(words_of(app, error), see_help(app)));
  }
  if (page_.empty()) refuse_options_as_values(named(root_), arguments);
  require_values(root_);
  refuse_lost_files(named(root_));
  if (page_.empty() && root_.get_subcommands().empty())
    throw UsageError(cat("no verb; verbs are ", join(verb_names(root_), ", "),
                         see_help(root_)));
}

std::string CommandLine::with_flags(const std::string& message) const {
  return cli::with_flags(named(root_), message);
}

Outcome CommandLine::run(const Output& out) const {
  if (!page_.empty()) {
    out.result(page_);
    return Outcome::kDone;
  }
  for (const Verb& verb : verbs_)
    if (verb.app->parsed()) return verb.run(out);
  throw InternalError("no verb was parsed");
}

}  // namespace canzona::cli

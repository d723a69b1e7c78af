// `canzona rules check`: compares our rules with their references.
#include <fmt/format.h>

#include <map>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/conformance/check.h"
#include "canzona/report/document.h"
#include "cli/options.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kRulesCheckExamples =
    R"(Examples:
  canzona rules check muon-keller-3x3-f64.safetensors
  canzona rules check fixtures/ --threads 4
  canzona rules check fixtures/ --newton-schulz gram --json
  canzona rules check fixtures/ --device cuda

A fixture holds the inputs of a reference implementation and its results after every step.
Exit status: 0 all passed or unsupported, 1 some failed, 2 some cannot be read.)";

constexpr int kMaxThreads = 256;
constexpr size_t kFewFiles = 20;  // up to this many are all shown
constexpr int64_t kNoteEvery = 100;
constexpr double kSlackOnGpu = 10;

struct RulesCheckFlags {
  std::vector<std::string> files;
  std::string form = "auto";
  std::string device = "cpu";
  std::optional<double> slack;  // nothing: the device's default
  std::optional<int64_t> threads;
  bool verbose = false;
  bool json = false;
};

struct Counts {
  int64_t passed = 0;
  int64_t failed = 0;  // including unreadable ones
  int64_t unsupported = 0;
};

Counts count(const std::vector<FileResult>& results) {
  Counts counts;
  for (const FileResult& result : results)
    if (result.verdict == Verdict::kPassed)
      ++counts.passed;
    else if (result.verdict == Verdict::kUnsupported)
      ++counts.unsupported;
    else
      ++counts.failed;
  return counts;
}

std::string verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassed:
      return toned(Tone::kGood, "passed");
    case Verdict::kFailed:
      return toned(Tone::kPoor, "FAILED");
    case Verdict::kUnsupported:
      return toned(Tone::kDim, "unsupported");
    case Verdict::kUnreadable:
      break;
  }
  return toned(Tone::kPoor, "UNREADABLE");
}

std::string name_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return printable(slash == std::string::npos ? path : path.substr(slash + 1));
}

// People see some of the files, programs all.
void add_result(const FileResult& result, bool is_shown, Listing& files) {
  const Finding& worst = result.worst;
  const Value none = nullptr;
  const auto number = [&](double x, const char* format) {
    return result.has_worst ? fmt::format(fmt::runtime(format), x) : "";
  };
  const bool has_passed = result.verdict == Verdict::kPassed;
  const bool explained = !has_passed && (!result.has_worst || worst.passed());
  Row& row = files.add();
  row.set("file", result.file).set("rule", result.rule);
  row.set("preset", result.preset).set("reason", result.reason);
  row.set("passed",
          result.verdict == Verdict::kUnsupported ? none : has_passed);
  row.set("worst", result.has_worst ? Value{{"tensor", worst.tensor},
                                            {"deviation", worst.deviation},
                                            {"tolerance", worst.tolerance}}
                                    : none);
  if (!is_shown) return;
  row.add({"", "~file", name_of(result.file)});
  row.add({"", "<", "", verdict_text(result.verdict)});
  row.add({"", ">worst", number(worst.deviation, "{:.1e}")});
  row.add({"", ">allowed", number(worst.tolerance, "{:.1e}")});
  row.add({"", ">ratio", number(worst.ratio(), "{:.3g}")});
  row.add({"", "~", explained ? result.reason : worst.tensor});
}

// Explains the failures that the table had no room for.
std::string reasons_text(const std::vector<FileResult>& results) {
  std::string out;
  std::map<std::string, int64_t> unsupported;
  for (const FileResult& result : results) {
    if (result.verdict == Verdict::kFailed)
      out += fmt::format("{}: {}\n", name_of(result.file),
                         printable(result.reason));
    if (result.verdict == Verdict::kUnsupported) ++unsupported[result.reason];
  }
  for (const auto& [reason, files] : unsupported)
    out += fmt::format("unsupported {} ({} {})\n", printable(reason, 70), files,
                       files == 1 ? "file" : "files");
  return out;
}

Document check_view(const std::vector<FileResult>& results,
                    const CheckOptions& options, bool all) {
  Listing files;
  const FileResult* nearest = nullptr;  // closest to failing, among those that
                                        // passed
  for (const FileResult& result : results) {
    add_result(result, all || result.verdict == Verdict::kFailed, files);
    if (result.verdict == Verdict::kPassed &&
        (nearest == nullptr || result.worst.ratio() > nearest->worst.ratio()))
      nearest = &result;
  }
  const Counts counts = count(results);
  Document out;
  out.table("files", files, "", 0).text(reasons_text(results));
  out.text(cat(counts.passed, " passed, ", counts.failed, " failed, ",
               counts.unsupported, " unsupported\non ", options.device,
               ", tolerances of ",
               options.other_slack == 1 ? "fp32 results" : "all results",
               " widened by ", options.slack, "\n"));
  if (nearest != nullptr)
    out.text(fmt::format("nearest to failing: {} {}, {:.3g} of the tolerance\n",
                         name_of(nearest->file), nearest->worst.tensor,
                         nearest->worst.ratio()));
  out.set("device", options.device).set("slack", options.slack);
  out.set("passed", counts.passed).set("failed", counts.failed);
  return out.set("unsupported", counts.unsupported);
}

void require_one_of(const std::string& given, const char* option,
                    const std::vector<std::string>& known) {
  if (std::find(known.begin(), known.end(), given) == known.end())
    throw UsageError(cat(option, " ", quoted(given), ": expected ",
                         join(known, ", "), did_you_mean(given, known)));
}

const std::vector<std::string>& forms() {
  static const std::vector<std::string> all = {"auto", "standard", "symmetric",
                                               "gram"};
  return all;
}

void require_form(const std::string& form) {
  require_one_of(form, "--newton-schulz", forms());
}

void require_device(const std::string& device) {
  require_one_of(device, "--device", device_names());
}

[[noreturn]] void refuse_unreadable(const std::vector<FileResult>& results) {
  std::vector<std::string> lines;
  for (const FileResult& result : results)
    if (result.verdict == Verdict::kUnreadable) lines.push_back(result.reason);
  throw UsageError(
      lines.size() == 1
          ? lines.front()
          : cat(lines.size(), " files cannot be read:\n", join(lines, "\n")));
}

CheckOptions check_options_of(const RulesCheckFlags& a) {
  const bool on_gpu = device_kind(a.device).has_own_memory;
  CheckOptions options{.newton_schulz = a.form, .device = a.device};
  options.slack = a.slack.value_or(on_gpu ? kSlackOnGpu : options.slack);
  if (on_gpu) options.other_slack = options.slack;
  return options;
}

Outcome run(const RulesCheckFlags& a, const Output& out) {
  require_form(a.form);
  require_device(a.device);
  const CheckOptions options = check_options_of(a);
  const auto threads = static_cast<int>(a.threads.value_or(1));
  if (device_kind(a.device).computes_batches && threads != 1)
    throw UsageError(cat(
        "--threads ", threads,
        " with --device cuda: a GPU checks files one at a time; expected 1"));
  Lanes lanes(threads, [&] { return make_engine(a.device); });
  const std::vector<std::string> files = fixture_files(a.files);
  const std::vector<FileResult> results =
      check_files(lanes, files, options, [&](int64_t done) {
        if (done % kNoteEvery == 0)
          out.note(cat(done, " of ", files.size(), " files checked"));
      });
  const bool all = a.verbose || results.size() <= kFewFiles;
  out.result(check_view(results, options, all), a.json);
  bool failed = false;
  for (const FileResult& result : results) {
    if (result.verdict == Verdict::kUnreadable) refuse_unreadable(results);
    failed |= result.verdict == Verdict::kFailed;
  }
  return failed ? Outcome::kFailed : Outcome::kDone;
}

OptionRows options_of(RulesCheckFlags& a) {
  return {
      argument("FILE", a.files, "safetensors files, or folders of them")
          .required(),
      option("--newton-schulz", a.form, "FORM",
             cat("Muon's form: ", join(forms(), ", ")))
          .offering(forms()),
      option("--device", a.device, "DEVICE", "cpu or cuda"),
      number(
          "--slack", a.slack, 1, 1000, "X",
          "factor by which to widen the tolerances of fp32 results, on cuda of "
          "all results; without it they hold for the reference's own BLAS")
          .by_default("4, on cuda 10"),
      number("--threads", a.threads, 1, kMaxThreads, "N",
             "files to check in parallel")
          .by_default("1"),
      flag("--verbose", a.verbose,
           "show every file, not only those that failed"),
      json_flag(a.json)};
}

}  // namespace

Verb add_rules_check(CLI::App& rules) {
  return add_verb_of<RulesCheckFlags>(
      rules,
      {.name = "check",
       .description =
           "replay recorded steps of reference implementations and compare",
       .footer = kRulesCheckExamples});
}

}  // namespace canzona::cli

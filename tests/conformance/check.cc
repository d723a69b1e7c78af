#include "tests/conformance/check.h"

#include <algorithm>
#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "tests/conformance/translate.h"
#include "canzona/rules/rule.h"

namespace canzona::tests {
namespace {

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code problem;
  std::filesystem::directory_iterator entries(folder, problem);
  if (problem)
    throw UsageError(cat("folder ", quoted(folder), ": ", problem.message()));
  for (const std::filesystem::directory_entry& entry : entries)
    if (entry.path().extension() == ".safetensors")
      files.push_back(entry.path().string());
  if (files.empty())
    throw UsageError(cat("folder ", quoted(folder), ": no *.safetensors"));
  std::sort(files.begin(), files.end());
  return files;
}

void judge(const Findings& findings, FileResult& result) {
  result.verdict = findings.passed() ? Verdict::kPassed : Verdict::kFailed;
  result.reason = findings.reason();
  result.has_worst = !findings.empty();
  result.worst = findings.worst();
}

void check_into(Engine& engine, const CheckOptions& options,
                FileResult& result) {
  const Fixture fixture = read_fixture_file(result.file);
  result.rule = fixture.rule;
  result.preset = fixture.preset;
  judge(fixture.is_pure() ? check_pure(engine, fixture, options)
                          : replay(engine, fixture, options),
        result);
}

}  // namespace

std::vector<std::string> fixture_files(
    const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(argument, ignored)) {
      files.push_back(argument);
      continue;
    }
    const std::vector<std::string> more = files_in(argument);
    files.insert(files.end(), more.begin(), more.end());
  }
  return files;
}

FileResult check_file(Engine& engine, const std::string& file,
                      const CheckOptions& options) {
  FileResult result;
  result.file = file;
  const auto end = [&](Verdict verdict, const std::string& reason) {
    result.verdict = verdict;
    result.reason = reason;
  };
  try {
    check_into(engine, options, result);
  } catch (const Unsupported& what) {
    end(Verdict::kUnsupported, what.what());
  } catch (const UsageError& error) {
    end(Verdict::kUnreadable, error.what());
  } catch (const NumericalError& error) {
    end(Verdict::kFailed, error.what());
  } catch (const InternalError& error) {
    end(Verdict::kFailed, cat("internal: ", error.what()));
  }
  return result;
}

}  // namespace canzona::tests

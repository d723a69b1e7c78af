// Checks fixtures, file by file.
//
//   for (const std::string& file : fixture_files({"golden"}))
//     const FileResult result = check_file(*engine, file, {});
//
// A file that is invalid, or asks for something that Canzona does not do, is a
// result like any other.
#pragma once

#include <string>
#include <vector>

#include "tests/conformance/fixture.h"
#include "tests/conformance/replay.h"

namespace canzona::tests {

enum class Verdict { kPassed, kFailed, kUnsupported, kUnreadable };

struct FileResult {
  std::string file;
  std::string rule;  // empty if the file cannot be read
  std::string preset;
  Verdict verdict = Verdict::kFailed;
  bool has_worst = false;
  Finding worst;
  std::string reason;  // why it did not pass
};

// Returns files as given, and for folders the *.safetensors in them, by name.
// Throws UsageError if a folder has none.
std::vector<std::string> fixture_files(
    const std::vector<std::string>& arguments);

FileResult check_file(Engine& engine, const std::string& file,
                      const CheckOptions& options);

}  // namespace canzona::tests

// Checks fixtures, file by file.
//
//   Lanes lanes(4, [] { return make_cpu_engine(); });
//   for (const FileResult& result :
//        check_files(lanes, fixture_files({"golden"}), {}, {})) …
//
// A file that is invalid, or asks for something that Canzona does not do, is a
// result like any other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "canzona/conformance/fixture.h"
#include "canzona/conformance/replay.h"
#include "canzona/linalg/lanes.h"

namespace canzona {

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

// Distributes files over the lanes; results are in the order of the files.
// `done` gets the number finished, from one lane at a time.
std::vector<FileResult> check_files(
    Lanes& lanes, const std::vector<std::string>& files,
    const CheckOptions& options, const std::function<void(int64_t)>& done = {});

}  // namespace canzona

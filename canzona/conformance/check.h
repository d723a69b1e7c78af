// Checks fixtures, file by file.
//
//   Lanes lanes(4, [] { return make_cpu_engine(); });
//   for (const FileResult& result :
//        check_files(lanes, fixture_files({"golden"}), {}, {})) …
//
// A file that is wrong in itself, or asks for what Canzona does not do, is a
// result like any other.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "canzona/conformance/compare.h"
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
  std::string reason;  // why not passed
};

// Files as they are, folders as the *.safetensors in them, by name. UsageError
// if a folder holds none.
std::vector<std::string> fixture_files(
    const std::vector<std::string>& arguments);

FileResult check_file(Engine& engine, const std::string& file,
                      const CheckOptions& options);

// Files are shared out over the lanes; results are in the order of the files.
// `done` hears how many are finished, from one lane at a time.
std::vector<FileResult> check_files(
    Lanes& lanes, const std::vector<std::string>& files,
    const CheckOptions& options, const std::function<void(int64_t)>& done = {});

}  // namespace canzona

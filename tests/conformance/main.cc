// Replays fixtures and compares, file by file:
//
//   build/canzona_conformance tests/data/golden
//   build-cuda/canzona_conformance fixtures/ --device cuda
//   build/canzona_conformance my.safetensors --newton-schulz gram --verbose
//
// Exit status: 0 all passed or unsupported, 1 some failed, 2 some cannot be
// read, or an argument is wrong.
#include <algorithm>
#include <cstdio>
#include <map>

#include "canzona/base/device_kind.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/linalg/engine.h"
#include "tests/conformance/check.h"

namespace canzona::tests {
namespace {

struct Arguments {
  std::vector<std::string> files;
  CheckOptions options;
  bool verbose = false;
};

std::string one_of(const std::string& option, const std::string& value,
                   const std::vector<std::string>& known) {
  if (std::ranges::find(known, value) == known.end())
    throw UsageError(cat(option, " ", quoted(value), ": expected ",
                         join(known, ", "), did_you_mean(value, known)));
  return value;
}

Arguments parse(const std::vector<std::string>& words) {
  Arguments out;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--verbose") {
      out.verbose = true;
    } else if (!word.starts_with("--")) {
      out.files.push_back(word);
    } else if (i + 1 == words.size()) {
      throw UsageError(cat(word, ": expected a value after it"));
    } else if (word == "--device") {
      out.options.device = one_of(word, words[++i], device_names());
    } else if (word == "--newton-schulz") {
      out.options.newton_schulz =
          one_of(word, words[++i], {"auto", "standard", "symmetric", "gram"});
    } else {
      throw UsageError(cat("unknown option ", quoted(word),
                           ": expected --device, --newton-schulz, --verbose"));
    }
  }
  if (out.files.empty())
    throw UsageError("expected fixtures, or folders of them");
  if (device_kind(out.options.device).has_own_memory)
    out.options.slack = out.options.other_slack = kSlackOnGpu;
  return out;
}

const char* verdict_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPassed:
      return "passed";
    case Verdict::kFailed:
      return "FAILED";
    case Verdict::kUnsupported:
      return "unsupported";
    case Verdict::kUnreadable:
      break;
  }
  return "UNREADABLE";
}

void print(const FileResult& result) {
  std::printf("%s: %s", printable(result.file, 200).c_str(),
              verdict_text(result.verdict));
  if (result.has_worst)
    std::printf(", %s deviates by %.1e of %.1e allowed",
                result.worst.tensor.c_str(), result.worst.deviation,
                result.worst.tolerance);
  if (!result.reason.empty())
    std::printf(" (%s)", printable(result.reason).c_str());
  std::printf("\n");
}

int run(const Arguments& a) {
  const auto engine = make_engine(a.options.device);
  std::map<Verdict, int64_t> counts;
  Finding nearest;  // to failing, among those that passed
  for (const std::string& file : fixture_files(a.files)) {
    const FileResult result = check_file(*engine, file, a.options);
    ++counts[result.verdict];
    const bool passed = result.verdict == Verdict::kPassed;
    if (a.verbose || !passed) print(result);
    if (passed && result.worst.ratio() >= nearest.ratio())
      nearest = {cat(file, " ", result.worst.tensor), result.worst.deviation,
                 result.worst.tolerance};
  }
  std::printf(
      "%ld passed, %ld failed, %ld unsupported, %ld unreadable\non %s, "
      "tolerances of fp32 results widened by %g, of others by %g\n",
      counts[Verdict::kPassed], counts[Verdict::kFailed],
      counts[Verdict::kUnsupported], counts[Verdict::kUnreadable],
      a.options.device.c_str(), a.options.slack, a.options.other_slack);
  if (counts[Verdict::kPassed] > 0)
    std::printf("nearest to failing: %s, %.3g of the tolerance\n",
                nearest.tensor.c_str(), nearest.ratio());
  if (counts[Verdict::kUnreadable] > 0) return 2;
  return counts[Verdict::kFailed] > 0 ? 1 : 0;
}

}  // namespace
}  // namespace canzona::tests

int main(int argc, char** argv) {
  try {
    return canzona::tests::run(canzona::tests::parse({argv + 1, argv + argc}));
  } catch (const canzona::Error& error) {
    std::fprintf(stderr, "canzona_conformance: %s\n", error.what());
    return 2;
  }
}

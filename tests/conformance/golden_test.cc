// The fixtures in this repository.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "tests/conformance/check.h"
#include "tests/conformance/replay.h"
#include "canzona/linalg/test_remote_engine.h"

namespace canzona::tests::conformance_golden_test {
namespace {

using testing::HasSubstr;

const std::vector<std::string>& carried() {
  static const std::vector<std::string> files =
      fixture_files({CANZONA_GOLDEN_FOLDER});
  return files;
}

std::string name_of(const std::string& file) {
  return std::filesystem::path(file).stem().string();
}

TEST(Golden, EveryFilePasses) {
  const auto engine = make_cpu_engine();
  std::set<std::string> rules;
  for (const std::string& file : carried()) {
    const FileResult result = check_file(*engine, file, {});
    EXPECT_EQ(result.verdict, Verdict::kPassed)
        << name_of(file) << ": " << result.reason;
    rules.insert(result.rule + " " + result.preset);
  }
  EXPECT_EQ(rules.size(), 30u);
}

// Code that reads a device's memory without its engine crashes here.
TEST(Golden, PassesInMemoryThatOnlyTheEngineReaches) {
  RemoteEngine engine(1);
  for (const std::string& file : carried()) {
    const FileResult result = check_file(engine, file, {});
    EXPECT_EQ(result.verdict, Verdict::kPassed)
        << name_of(file) << ": " << result.reason;
  }
}

TEST(Golden, NewtonSchulzPassesInEveryDirectForm) {
  const auto engine = make_cpu_engine();
  for (const char* form : {"standard", "symmetric"})
    for (const std::string& file : carried()) {
      const std::string name = name_of(file);
      if (!name.starts_with("muon") && !name.starts_with("ns")) continue;
      const FileResult result =
          check_file(*engine, file, {.newton_schulz = form});
      EXPECT_NE(result.verdict, Verdict::kFailed)
          << form << " " << name << ": " << result.reason;
    }
}

// Gram matrices of 16-bit numbers are too inaccurate for matrices this small.
TEST(Golden, MuonPassesInTheGramFormInFp64AndFp32) {
  const auto engine = make_cpu_engine();
  int64_t count = 0;
  for (const std::string& file : carried()) {
    const std::string name = name_of(file);
    if (!name.starts_with("muon") || name.ends_with("bf16_ns")) continue;
    const FileResult result =
        check_file(*engine, file, {.newton_schulz = "gram"});
    EXPECT_NE(result.verdict, Verdict::kFailed)
        << name << ": " << result.reason;
    ++count;
  }
  EXPECT_GT(count, 20);
}

Findings checked(Engine& engine, const Fixture& fixture) {
  return fixture.is_pure() ? check_pure(engine, fixture, {})
                           : replay(engine, fixture, {});
}

// Moves one element of a tensor further than any tolerance allows.
void damage(FixtureTensor& tensor) {
  double largest = 0;
  for (double x : tensor.values) largest = std::max(largest, std::abs(x));
  tensor.values[tensor.values.size() / 2] += largest == 0 ? 1 : 9 * largest;
}

// Tests the checker itself: every expectation of a file matters.
TEST(Golden, EveryDamagedExpectationIsNoticed) {
  const auto engine = make_cpu_engine();
  std::set<std::string> seen;
  for (const std::string& file : carried()) {
    Fixture fixture = read_fixture_file(file);
    const std::string kind =
        cat(fixture.rule, fixture.preset, fixture.dtype, fixture.injected);
    if (fixture.tensors.size() > 60) continue;
    if (check_file(*engine, file, {}).verdict != Verdict::kPassed) continue;
    if (!seen.insert(kind).second) continue;
    for (auto& [name, tensor] : fixture.tensors) {
      const TensorName parsed = *parse_tensor_name(name);
      const bool is_input = parsed.inject || parsed.what == "grad" ||
                            parsed.what == "in" || name == "param.0" ||
                            parsed.what == "max_logits";
      if (is_input || !tolerance_of(fixture, parsed)) continue;
      const FixtureTensor whole = tensor;
      damage(tensor);
      EXPECT_FALSE(checked(*engine, fixture).passed())
          << name_of(file) << " " << name;
      tensor = whole;
    }
  }
  EXPECT_GT(seen.size(), 25u);
}

TEST(Golden, NanInAnInputIsNoticed) {
  const auto engine = make_cpu_engine();
  const std::string file = *std::find_if(
      carried().begin(), carried().end(),
      [](const std::string& f) { return name_of(f).starts_with("muon"); });
  Fixture fixture = read_fixture_file(file);
  fixture.tensors.at("grad.1").values[0] = NAN;
  EXPECT_FALSE(checked(*engine, fixture).passed());
}

TEST(Golden, AFileThatIsCutShortIsUnreadableAndNamed) {
  const std::string path = (std::filesystem::temp_directory_path() /
                            cat("canzona_cut_", ::getpid(), ".safetensors"))
                               .string();
  const std::string bytes = read_file(carried().front(), 64 << 20, "test");
  std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() - 1);
  const FileResult result = check_file(*make_cpu_engine(), path, {});
  std::filesystem::remove(path);
  EXPECT_EQ(result.verdict, Verdict::kUnreadable);
  EXPECT_THAT(result.reason, HasSubstr("canzona_cut_"));
}

TEST(Golden, FoldersWithoutFixturesAreRefused) {
  EXPECT_THROW(fixture_files({CANZONA_GOLDEN_FOLDER "/.."}), UsageError);
}

}  // namespace
}  // namespace canzona::tests::conformance_golden_test

#include "canzona/linalg/cpu/blas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "canzona/base/text.h"
#include "canzona/linalg/cpu/blas_environment.h"
#include "canzona/linalg/cpu/features.h"

namespace canzona::linalg::blas_test {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string output_of(const std::string& command) {
  std::string output;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "popen failed";
  std::array<char, 4096> buffer;
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr)
    output += buffer.data();
  pclose(pipe);
  return output;
}

std::string contents_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Runs this program again, printing its core (see Child below).
std::string child_with(const std::string& environment) {
  std::array<char, 4096> path = {};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) < 0)
    return "no /proc/self/exe";
  return output_of(cat("env ", environment, " '", path.data(),
                       "' --gtest_also_run_disabled_tests "
                       "--gtest_filter=Child.DISABLED_* 2>&1"));
}

// Returns what the child printed after "core=".
std::string core_in(const std::string& output) {
  const std::string_view kName = "\ncore=";
  const size_t begin = output.find(kName);
  if (begin == output.npos) return "";
  const size_t value = begin + kName.size();
  return output.substr(value, output.find('\n', value) - value);
}

// Not a test: run as a child of the others. Restarts as main would.
TEST(Child, DISABLED_TellsItsCoreAndEnvironment) {
  std::vector<std::string> words =
      split_text(contents_of("/proc/self/cmdline"), '\0');
  std::vector<char*> argv;
  for (std::string& word : words)
    if (!word.empty()) argv.push_back(word.data());
  argv.push_back(nullptr);
  restart_with_blas_core(argv.data());
  begin_blas();
  std::cout << "core=" << blas_info().core << "\n"
            << output_of("env | grep -E '^(OPENBLAS|CANZONA)_'");
}

TEST(Blas, TellsWhatIsLinked) {
  const BlasInfo info = blas_info();
  EXPECT_THAT(info.library, testing::MatchesRegex("OpenBLAS [0-9.]+.*"));
  EXPECT_THAT(info.config, HasSubstr(info.library));
  EXPECT_FALSE(info.core.empty());
  EXPECT_EQ(info.shared, blas_is_shared());
}

TEST(Blas, RunsKernelsThatFitTheCpu) {
  if (user_chose_blas_core()) GTEST_SKIP() << "OPENBLAS_CORETYPE is set";
  if (blas_is_shared()) GTEST_SKIP() << "a shared OpenBLAS chose for itself";
  EXPECT_FALSE(blas_info().fallback_core) << blas_info().core;
}

TEST(Blas, KnowsOldCoresOnlyWhereTheCpuIsNewer) {
  EXPECT_EQ(is_fallback_core("Prescott"), cpu_features().avx2);
  EXPECT_EQ(is_fallback_core("NEHALEM"), cpu_features().avx2);
  EXPECT_FALSE(is_fallback_core("SkylakeX"));
  EXPECT_FALSE(is_fallback_core("Haswell"));
  EXPECT_FALSE(is_fallback_core("neoversev1"));
}

TEST(Blas, MeasuresASpeed) { EXPECT_GT(measure_sgemm_gflops(), 0.1); }

TEST(BlasEnvironment, IsNotInheritedByChildren) {
  if (user_chose_blas_core()) GTEST_SKIP() << "OPENBLAS_CORETYPE is set";
  begin_blas();
  EXPECT_EQ(std::getenv("OPENBLAS_CORETYPE"), nullptr);
  EXPECT_THAT(output_of("env"), Not(HasSubstr("OPENBLAS_CORETYPE=")));
  EXPECT_THAT(output_of("env"), Not(HasSubstr("CANZONA_BLAS")));
}

TEST(BlasEnvironment, OfTheUserIsObeyedAndKept) {
  if (!cpu_features().avx512 ||
      blas_info().config.find("DYNAMIC_ARCH") == std::string::npos)
    GTEST_SKIP() << "there are no two cores to choose from";
  const std::string output =
      child_with("OPENBLAS_CORETYPE=Haswell OPENBLAS_NUM_THREADS=2");
  EXPECT_EQ(core_in(output), "Haswell");
  EXPECT_THAT(output, HasSubstr("OPENBLAS_CORETYPE=Haswell"));
  EXPECT_THAT(output, HasSubstr("OPENBLAS_NUM_THREADS=2"));
}

TEST(BlasEnvironment, OfTheUserIsKeptWhereOneVariableIsOurs) {
  const std::string output =
      child_with("-u OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS=2");
  EXPECT_THAT(output, HasSubstr("OPENBLAS_NUM_THREADS=2"));
  EXPECT_THAT(output, Not(HasSubstr("OPENBLAS_CORETYPE=")));
  EXPECT_THAT(output, Not(HasSubstr("CANZONA_BLAS")));
}

TEST(BlasEnvironment, OfAProgramThatMayRestartFitsTheCpu) {
  const std::string output = child_with("-u OPENBLAS_CORETYPE");
  EXPECT_FALSE(core_in(output).empty()) << output;
  EXPECT_FALSE(is_fallback_core(core_in(output))) << output;
  EXPECT_THAT(output, Not(HasSubstr("OPENBLAS_CORETYPE=")));
  EXPECT_THAT(output, Not(HasSubstr("CANZONA_BLAS")));
  EXPECT_THAT(output, Not(HasSubstr("does not recognize this CPU")));
}

}  // namespace
}  // namespace canzona::linalg::blas_test

#include "canzona/linalg/cpu/blas_environment.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "canzona/base/environment.h"
#include "canzona/linalg/cpu/blas.h"
#include "canzona/linalg/cpu/features.h"

extern "C" void gotoblas_init(void);

namespace canzona::linalg {
namespace {

constexpr bool kBlasShared = CANZONA_BLAS_SHARED;
constexpr const char* kCoreVariable = "OPENBLAS_CORETYPE";
constexpr const char* kThreadsVariable = "OPENBLAS_NUM_THREADS";
// Has "core", "threads" or both: the variables set before the restart.
constexpr const char* kRestartedVariable = "CANZONA_BLAS_RESTARTED";

// Sets a variable that the user has not set; returns whether it did.
bool lend(const char* name, const std::string& value) {
  return !value.empty() && environment_variable(name) == nullptr &&
         set_environment_variable(name, value);
}

struct Loan {
  bool core = lend(kCoreVariable, std::string(wanted_blas_core()));
  bool threads = lend(kThreadsVariable, "1");

  void take_back() const {
    if (core) unset_environment_variable(kCoreVariable);
    if (threads) unset_environment_variable(kThreadsVariable);
  }
};

// Priority 101 is the first that programs may use; the library's own
// constructor has none and runs after all that do. Initializing it from here
// keeps the variables from being seen by anything else.
[[gnu::constructor(101)]] void start_blas() {
  if constexpr (!kBlasShared) {
    const Loan loan;
    gotoblas_init();
    loan.take_back();
  }
}

// Removes the variables set before the restart; returns false if there was
// none.
bool second_life() {
  const char* restarted = environment_variable(kRestartedVariable);
  if (restarted == nullptr) return false;
  const std::string_view set = restarted;
  if (set.find("core") != set.npos) unset_environment_variable(kCoreVariable);
  if (set.find("threads") != set.npos)
    unset_environment_variable(kThreadsVariable);
  unset_environment_variable(kRestartedVariable);
  return true;
}

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return result;
}

}  // namespace

// OpenBLAS has long known both names, and the cores it has since added for
// newer CPUs run the same kernels in fp32 and fp64.
std::string_view wanted_blas_core() {
  if (cpu_features().avx512) return "SkylakeX";
  if (cpu_features().avx2) return "Haswell";
  return {};
}

bool user_chose_blas_core() {
  return environment_variable(kCoreVariable) != nullptr;
}

bool is_fallback_core(std::string_view core) {
  static constexpr std::array<std::string_view, 21> kWithoutAvx2 = {
      "generic",    "katmai",      "coppermine", "northwood", "prescott",
      "banias",     "atom",        "core2",      "penryn",    "dunnington",
      "nehalem",    "sandybridge", "athlon",     "opteron",   "opteron_sse3",
      "barcelona",  "nano",        "bobcat",     "bulldozer", "piledriver",
      "steamroller"};
  return cpu_features().avx2 &&
         std::find(kWithoutAvx2.begin(), kWithoutAvx2.end(),
                   lower_case(core)) != kWithoutAvx2.end();
}

bool blas_has_avx512() {
  const std::string core = lower_case(openblas_get_corename());
  return cpu_features().avx512 && (core == "skylakex" || core == "cooperlake" ||
                                   core == "sapphirerapids");
}

void restart_with_blas_core(char** argv) {
  if constexpr (kBlasShared) {
    if (second_life() || user_chose_blas_core() ||
        !is_fallback_core(openblas_get_corename()))
      return;
    const Loan loan;
    const std::string set =
        std::string(loan.core ? "core" : "") + (loan.threads ? "threads" : "");
    if (loan.core && set_environment_variable(kRestartedVariable, set))
      execv("/proc/self/exe", argv);
    unset_environment_variable(kRestartedVariable);
    loan.take_back();
  } else {
    static_cast<void>(argv);
  }
}

bool blas_is_shared() { return kBlasShared; }

}  // namespace canzona::linalg
